"""The account's concurrency limit: remembered, shared among jobs, never asked for in a round."""

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
        """The limit as last seen; None when it never was."""
        return self._recent.known(None)

    async def limit(self) -> int:
        """Return the limit, asking again when it was last seen too long ago.

        Raises:
            LambdaApiError: It was never seen and is not now.
        """
        return await self._recent.of(None)

    async def refresh(self) -> None:
        """See to it that the limit is known, if it can be."""
        try:
            await self.limit()
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
