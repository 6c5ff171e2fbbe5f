"""The account's concurrency limit: cached, shared among jobs, never fetched during a round."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from services.scaler.launching.lambda_function import LambdaApiError
from services.scaler.recent import Recent

_LOG = logging.getLogger(__name__)


class ConcurrencyQuota:
    """The limit on executions in flight, fetched now and then."""

    def __init__(self, fetch: Callable[[], Awaitable[int]], *, ttl_s: float) -> None:
        self._recent: Recent[None, int] = Recent(
            get=lambda _: fetch(), fails_with=LambdaApiError, ttl_s=ttl_s
        )

    @property
    def known(self) -> int | None:
        """The limit as last read; None if never."""
        return self._recent.known(None)

    async def limit(self) -> int:
        """Return the limit, refreshed if it is too old.

        Raises:
            LambdaApiError: It was never seen and is not now.
        """
        return await self._recent.of(None)

    async def refresh(self) -> None:
        """Try to read the limit."""
        try:
            await self.limit()
        except LambdaApiError as error:
            _LOG.warning("concurrency limit not known", extra={"why": str(error)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """The load on the account."""

    limit: int | None
    """Executions it may have in flight; None while unknown."""
    running_jobs: int
    others_in_flight: int
    """Other jobs' invocations in flight."""
    own_in_flight: int = 0
    """Invocations in flight of the job's other open rounds."""

    def granted(self, requested: int, *, open_rounds: int = 1) -> int:
        """Return how many actors a job may launch.

        A job may always use its even share of the limit, and more while others leave it unused. Its
        rounds in flight count against it, and each open round is limited to an even part. One actor
        is always granted.
        """
        if self.limit is None:
            return requested
        share = max(self.limit // max(1, self.running_jobs), self.limit - self.others_in_flight)
        return max(1, min(requested, share // open_rounds, share - self.own_in_flight))
