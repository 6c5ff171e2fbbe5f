"""Pings: what keeps environments of earlier rounds warm between rounds that need fewer, or none.

Lambda lets go of an environment that idles for some minutes. As many pings as there are idle ones
are sent together, each long enough that none of them finds one free that another has just left.
An environment that a ping finds gone is started by it. The jobs that it is kept for are told.
Those that rounds keep busy need none: nothing is sent while as many as are to be kept have worked
at the same time within the last minutes.
"""

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from services.scaler.book.records import JobRecord
from services.scaler.capacity.decision import CapacityRule, counts, is_held
from services.scaler.launching.invoker import ActorInvoker
from services.scaler.launching.lambda_function import Execution
from services.scaler.launching.launches import Launches
from services.scaler.metrics import Metrics
from services.scaler.money.kept_warm import kept_by_pings
from shared.contracts.rollouts import PingReport
from shared.money.costs import ping_s

_LOG = logging.getLogger(__name__)


def environments_to_keep(jobs: Sequence[JobRecord], rule: CapacityRule, now: float) -> int:
    """Return how many environments are to be kept: started once, and of use to a job in hand."""
    return sum(
        min(record.environments, kept_by_pings(record))
        for record in jobs
        if is_held(record, now) and counts(record, rule, now)
    )


@dataclass(kw_only=True, eq=False)
class KeepAlive:
    """Pings idle environments when it is time."""

    invoker: ActorInvoker
    launches: Launches
    metrics: Metrics
    every_s: float
    """How long an environment may idle; infinity is for ever."""
    timeout_s: float
    """The function's: a ping that lasted as long would end its environment."""

    _started: int = 0
    _pings: asyncio.Task[None] | None = None

    def take_started(self) -> int:
        """Return how many environments pings found gone, and started, since it was last asked."""
        started, self._started = self._started, 0
        return started

    def look(self, num: int) -> float:
        """See to it that `num` environments stay; return in how many seconds to look again."""
        if not num or math.isinf(self.every_s):
            return math.inf
        in_use, now = self.launches.in_use, time.monotonic()
        last = in_use.last(num)
        if math.isinf(last):
            # They are of an earlier process. It may have pinged them just now, or they may still
            # be at work for it: one that starts again and again must not send more than is billed.
            in_use.note(num, now)
            return self.every_s
        due_in_s = last + self.every_s - now
        if due_in_s > 0:
            return due_in_s
        idle = num - self.launches.flights.in_flight()
        # Pings that have not ended hold their environments: more would queue before rollouts.
        if idle > 0 and (self._pings is None or self._pings.done()):
            hold_s = ping_s(idle, timeout_s=self.timeout_s)
            self._pings = asyncio.ensure_future(self.invoker.ping(idle, hold_s, self._ended))
        in_use.note(num, now)
        return self.every_s

    def _ended(self, execution: Execution) -> None:
        found = "error"
        if execution.kind == "done":
            try:
                report = PingReport.read(execution.payload)
                found = "none" if report.cold_start else "warm"
                self._started += report.cold_start
            except ValidationError:
                _LOG.warning("an actor does not know pings: deploy scaler and actor together")
        else:
            _LOG.info("ping failed", extra={"why": execution.reason})
        self.metrics.pings.labels(found=found).inc()
