"""The account's concurrency limit: remembered, shared among jobs, never asked for in a round."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from services.scaler.launching.lambda_function import LambdaApiError

_LOG = logging.getLogger(__name__)


class ConcurrencyQuota:
    """The limit on executions in flight, fetched now and then. Thread-safe."""

    def __init__(self, fetch: Callable[[], int], *, ttl_s: float) -> None:
        self._fetch = fetch
        self._ttl_s = ttl_s
        self._lock = threading.Lock()
        self._limit: int | None = None
        self._fetched_at = 0.0

    @property
    def known(self) -> int | None:
        """The limit as last seen; None when it never was."""
        return self._limit

    def limit(self) -> int:
        """Return the limit, asking again when it was last seen too long ago.

        Raises:
            LambdaApiError: It was never seen and cannot be now.
        """
        with self._lock:
            now = time.monotonic()
            if self._limit is not None and now - self._fetched_at < self._ttl_s:
                return self._limit
            try:
                self._limit = self._fetch()
            except LambdaApiError:
                if self._limit is None:
                    raise
            self._fetched_at = now
            return self._limit

    def refresh(self) -> None:
        """See to it that the limit is known, if it can be."""
        try:
            self.limit()
        except LambdaApiError as error:
            _LOG.warning("concurrency limit not known", extra={"why": str(error)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """How busy the account is."""

    limit: int | None
    """Executions it may have in flight; None while unknown."""
    running_jobs: int
    others_in_flight: int
    """Invocations of other jobs under way."""
    own_in_flight: int = 0
    """Invocations of the job's other open rounds under way."""

    def granted(self, requested: int, *, open_rounds: int = 1) -> int:
        """Return how many actors a job may launch.

        A job may always have its even share of the limit, and more while others leave it unused;
        its rounds that are still in flight count against it, and none of those it keeps open may
        take more than an even part of it. One actor is always granted.
        """
        if self.limit is None:
            return requested
        share = max(self.limit // max(1, self.running_jobs), self.limit - self.others_in_flight)
        return max(1, min(requested, share // open_rounds, share - self.own_in_flight))
