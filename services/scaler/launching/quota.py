"""The account's concurrency limit: remembered, shared among jobs, never asked for in a round."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from services.scaler.launching.lambda_function import LambdaApiError

_LOG = logging.getLogger(__name__)


_AGAIN_S = 1.0
"""How soon a limit that could not be fetched is asked for again."""


class ConcurrencyQuota:
    """The limit on executions in flight, fetched now and then. Thread-safe.

    One caller at a time fetches it. The others get the last answer, or failure, meanwhile; only
    before the first of all they wait for it.
    """

    def __init__(self, fetch: Callable[[], int], *, ttl_s: float) -> None:
        self._fetch = fetch
        self._ttl_s = ttl_s
        self._fetching = threading.Lock()
        self._limit: int | None = None
        self._failure: str | None = None
        self._due_at = 0.0

    @property
    def known(self) -> int | None:
        """The limit as last seen; None when it never was."""
        return self._limit

    def limit(self) -> int:
        """Return the limit, asking again when it was last seen too long ago.

        Raises:
            LambdaApiError: It was never seen and is not now.
        """
        first = self._limit is None and self._failure is None
        if self._is_due() and self._fetching.acquire(blocking=first):
            try:
                if self._is_due():
                    self._fetch_again()
            finally:
                self._fetching.release()
        if self._limit is None:
            raise LambdaApiError(self._failure)
        return self._limit

    def _is_due(self) -> bool:
        return time.monotonic() >= self._due_at

    def _fetch_again(self) -> None:
        again_s = self._ttl_s
        try:
            self._limit = self._fetch()
        except LambdaApiError as error:
            self._failure = str(error)
            if self._limit is None:
                again_s = min(_AGAIN_S, self._ttl_s)
        self._due_at = time.monotonic() + again_s

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
