"""The scaler's readiness: its dependencies are checked at intervals, independent of requests.

Anybody may ask. On AWS a check calls Lambda's control plane, which allows a few calls a second for
the whole account: a caller in a loop would block scaler and dead-man switch.

A check may take as long as the slowest time-out. One caller waits for it; the others get the last
answer.
"""

from collections.abc import Awaitable, Callable, Mapping

from services.scaler.book.table import StoreError
from services.scaler.launching.lambda_function import LambdaApiError
from shared.cache.connection import CacheError

_AGAIN_S = 1.0
"""How soon a missing dependency is checked again."""
_NOT_YET = "the first look is under way; ask again in a few seconds"


class Readiness:
    """The last check, and the time of the next one."""

    def __init__(
        self,
        checks: Mapping[str, Callable[[], Awaitable[object]]],
        *,
        every_s: float,
        now: Callable[[], float],
    ) -> None:
        """Check nothing yet; each check raises if its dependency is missing.

        A check without a missing dependency is valid for `every_s`, on a monotonic clock.
        """
        self._checks = checks
        self._every_s = every_s
        self._now = now
        self._looking = False
        self._missing = dict.fromkeys(checks, _NOT_YET)
        self._due_at = now()

    async def missing(self) -> dict[str, str]:
        """Return the missing dependencies by name, with the reasons."""
        if self._now() >= self._due_at and not self._looking:
            self._looking = True
            try:
                self._missing = await self._look()
                again_s = min(_AGAIN_S, self._every_s) if self._missing else self._every_s
                self._due_at = self._now() + again_s
            finally:
                self._looking = False
        return dict(self._missing)

    async def _look(self) -> dict[str, str]:
        missing: dict[str, str] = {}
        for name, check in self._checks.items():
            try:
                await check()
            except (CacheError, LambdaApiError, StoreError) as error:
                missing[name] = str(error)
        return missing
