"""A cache of expensive answers for some seconds."""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_MOST = 64
"""Most cached answers."""
_AGAIN_S = 1.0
"""Retry interval of an answer that has never arrived."""


@dataclass(kw_only=True, eq=False)
class _Kept(Generic[V]):
    getting: asyncio.Future[None] | None = None
    """Set while a caller fetches it."""
    answers: tuple[V, ...] = ()
    """The newest answer, if any."""
    failure: Exception | None = None
    """The reason for a failure."""
    good_until: float = -math.inf


@dataclass(kw_only=True, eq=False)
class Recent(Generic[K, V]):
    """Fetches each answer at most once in `ttl_s`, by one caller at a time.

    During a refresh, or after a failed one, other callers get the previous answer. Only the very
    first answer makes them wait; a failure is shared for a second.
    """

    get: Callable[[K], Awaitable[V]]
    fails_with: type[Exception]
    """Exception of `get` without an answer."""
    ttl_s: float
    now: Callable[[], float] = time.monotonic
    """Seconds of a monotonic clock."""
    _kept: OrderedDict[K, _Kept[V]] = field(default_factory=OrderedDict)

    async def of(self, key: K) -> V:
        """Return an answer; raises `fails_with` if there is none yet."""
        kept = self._kept.setdefault(key, _Kept())
        self._kept.move_to_end(key)
        while len(self._kept) > _MOST:
            self._kept.popitem(last=False)
        first = not kept.answers and kept.failure is None
        if self.now() >= kept.good_until and (kept.getting is None or first):
            if kept.getting is None:
                kept.getting = asyncio.ensure_future(self._get_again(key, kept))
            # A cancelled caller must not cancel the fetch for the others.
            await asyncio.shield(kept.getting)
        if kept.answers:
            return kept.answers[0]
        assert kept.failure is not None
        raise kept.failure.with_traceback(None)

    def known(self, key: K) -> V | None:
        """Return the newest answer of any age, without fetching; None without one."""
        kept = self._kept.get(key)
        return kept.answers[0] if kept is not None and kept.answers else None

    async def _get_again(self, key: K, kept: _Kept[V]) -> None:
        good_s = self.ttl_s
        try:
            kept.answers = (await self.get(key),)
        except self.fails_with as error:
            kept.failure = error
            if not kept.answers:
                good_s = min(_AGAIN_S, self.ttl_s)
        finally:
            kept.getting = None
        kept.good_until = self.now() + good_s
