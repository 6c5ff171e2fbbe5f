"""Provisioned concurrency: open while jobs run, closed when the last one has ended.

It is billed by the hour whether used or not, so what is configured is compared with what is wanted
at start and after every change, on a thread of its own: no round ever waits for it, and when AWS
refuses, actors merely start cold.
"""

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from services.scaler.lambda_function import LambdaApiError
from services.scaler.metrics import Metrics
from services.scaler.store.base import Store, StoreError

_LOG = logging.getLogger(__name__)
_POLL_S = 2.0
_RETRY_S = 30.0


class WarmFunction(Protocol):
    """Administration of warm environments."""

    def provision(self, num_environments: int) -> None:
        """Keep that many environments warm; 0 ends it."""

    def provisioned(self) -> tuple[int, int]:
        """Return how many are asked for and how many are ready."""


def wanted_environments(store: Store, setting: int) -> int:
    """Return how many environments the jobs being trained are worth keeping warm."""
    active = store.with_status(("running", "stopping"))
    return min(setting, max((record.job.spec.actors.max for record in active), default=0))


class WarmPool:
    """Keeps the alias's provisioned concurrency at what the running jobs want."""

    def __init__(self, function: WarmFunction, wanted: Callable[[], int], metrics: Metrics) -> None:
        self._function = function
        self._wanted = wanted
        self._metrics = metrics
        self._wake = threading.Event()
        self._closing = False
        self._ready = 0
        self._thread = threading.Thread(target=self._run, name="warm-pool", daemon=True)

    @property
    def ready(self) -> int:
        """Environments that are warm, as last seen."""
        return self._ready

    def start(self) -> None:
        """Begin, with a look at what an earlier process left."""
        self._wake.set()
        self._thread.start()

    def reconcile(self) -> None:
        """Look again soon: jobs have started or ended."""
        self._wake.set()

    def close(self, *, wait_s: float) -> None:
        """End; what is configured stays for the next process to reconcile."""
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(wait_s)

    def _run(self) -> None:
        pause_s: float | None = None
        while True:
            self._wake.wait(pause_s)
            self._wake.clear()
            if self._closing:
                return
            try:
                pause_s = self._adjust()
            except (LambdaApiError, StoreError) as error:
                _LOG.warning("provisioned concurrency not adjusted", extra={"why": str(error)})
                pause_s = _RETRY_S

    def _adjust(self) -> float | None:
        """Make one step; return after how long to look again, None for when something changes."""
        wanted = self._wanted()
        asked, ready = self._function.provisioned()
        if asked != wanted:
            _LOG.info("provisioned concurrency changes", extra={"from": asked, "to": wanted})
            self._function.provision(wanted)
            ready = min(ready, wanted)
        self._ready = ready
        self._metrics.provisioned.set(wanted)
        return _POLL_S if ready < wanted else None
