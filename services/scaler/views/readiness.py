"""The scaler's readiness: its dependencies are checked at intervals, independent of requests.

Anybody may ask, and on AWS a look is a call of Lambda's control plane, which allows a few a second
for the whole account: whoever asked in a loop would keep scaler and dead-man switch from it.

A look may take as long as the slowest time-out. One caller waits for it; the others get the last
answer.
"""

from collections.abc import Awaitable, Callable, Mapping

from services.scaler.book.table import StoreError
from services.scaler.launching.lambda_function import LambdaApiError
from shared.cache.connection import CacheError

_AGAIN_S = 1.0
"""How soon something missing is looked for again."""
_NOT_YET = "the first look is under way; ask again in a few seconds"


class Readiness:
    """The last look, and when the next one is due."""

    def __init__(
        self,
        checks: Mapping[str, Callable[[], Awaitable[object]]],
        *,
        every_s: float,
        now: Callable[[], float],
    ) -> None:
        """Look at nothing yet; each check raises if what it is named after is not there.

        A look at which everything was there holds `every_s`, on a clock that is never set back.
        """
        self._checks = checks
        self._every_s = every_s
        self._now = now
        self._looking = False
        self._missing = dict.fromkeys(checks, _NOT_YET)
        self._due_at = now()

    async def missing(self) -> dict[str, str]:
        """Return what the scaler needs and does not have, by name, with the reason."""
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
