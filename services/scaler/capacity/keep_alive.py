"""Pings keep environments of earlier rounds warm while rounds need fewer, or none.

Lambda removes an environment after some idle minutes. One ping per idle environment is sent at the
same time. Each ping lasts long enough that no two share an environment. A ping that finds its
environment gone starts a new one, which is reported to its jobs. Busy environments need no pings:
none is sent if enough environments worked concurrently in the last minutes.
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
from services.scaler.launching.execution import Execution
from services.scaler.launching.invoker import ActorInvoker
from services.scaler.launching.launches import Launches
from services.scaler.metrics import Metrics
from services.scaler.money.kept_warm import kept_by_pings
from shared.contracts.rollouts import PingReport
from shared.money.costs import ping_s

_LOG = logging.getLogger(__name__)


def environments_to_keep(jobs: Sequence[JobRecord], rule: CapacityRule, now: float) -> int:
    """Return how many environments to keep: already started, and useful to a current job."""
    return sum(
        min(record.environments, kept_by_pings(record))
        for record in jobs
        if is_held(record, now) and counts(record, rule, now)
    )


@dataclass(kw_only=True, eq=False)
class KeepAlive:
    """Pings idle environments when due."""

    invoker: ActorInvoker
    launches: Launches
    metrics: Metrics
    every_s: float
    """How long an environment may idle; infinity for no limit."""
    timeout_s: float
    """The function's time-out: a ping that reached it would end its environment."""

    _started: int = 0
    _pings: asyncio.Task[None] | None = None

    def take_started(self) -> int:
        """Return how many environments pings found gone and restarted since the last call."""
        started, self._started = self._started, 0
        return started

    def look(self, num: int) -> float:
        """Keep `num` environments alive; return the seconds until the next check."""
        if not num or math.isinf(self.every_s):
            return math.inf
        in_use, now = self.launches.in_use, time.monotonic()
        last = in_use.last(num)
        if math.isinf(last):
            # An earlier process may just have pinged them, or they may still work for it: repeated
            # restarts must not send more pings than are billed.
            in_use.note(num, now)
            return self.every_s
        due_in_s = last + self.every_s - now
        if due_in_s > 0:
            return due_in_s
        idle = num - self.launches.flights.in_flight()
        # Running pings occupy their environments: more would queue before rollouts.
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
