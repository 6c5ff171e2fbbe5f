"""Answers that are costly to get, kept for some seconds for everybody who asks."""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_MOST = 64
"""Answers that are kept at a time."""
_AGAIN_S = 1.0
"""How soon an answer that has never come is asked for again."""


@dataclass(kw_only=True, eq=False)
class _Kept(Generic[V]):
    getting: threading.Lock = field(default_factory=threading.Lock)
    answers: tuple[V, ...] = ()
    """The newest one, if there has been any."""
    failure: Exception | None = None
    """Why there is none."""
    good_until: float = -math.inf

    def answer(self) -> V:
        if self.answers:
            return self.answers[0]
        assert self.failure is not None
        raise self.failure.with_traceback(None)


@dataclass(kw_only=True, eq=False)
class Recent(Generic[K, V]):
    """Gets each answer at most once in `ttl_s`, one caller at a time. Thread-safe.

    While one caller gets it anew, or if that fails, the others are given the one before. Only for
    the first of all they wait; if that fails they share the failure, for a second.
    """

    get: Callable[[K], V]
    fails_with: type[Exception]
    """What `get` raises where it has no answer now."""
    ttl_s: float
    now: Callable[[], float] = time.monotonic
    """Seconds of a clock that never goes back."""
    _kept: OrderedDict[K, _Kept[V]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, key: K) -> V:
        """Return an answer; raises `fails_with` if there has been none yet."""
        with self._lock:
            kept = self._kept.setdefault(key, _Kept())
            self._kept.move_to_end(key)
            while len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        first = not kept.answers and kept.failure is None
        if self.now() >= kept.good_until and kept.getting.acquire(blocking=first):
            try:
                if self.now() >= kept.good_until:
                    self._get_again(key, kept)
            finally:
                kept.getting.release()
        return kept.answer()

    def _get_again(self, key: K, kept: _Kept[V]) -> None:
        good_s = self.ttl_s
        try:
            kept.answers = (self.get(key),)
        except self.fails_with as error:
            kept.failure = error
            if not kept.answers:
                good_s = min(_AGAIN_S, self.ttl_s)
        kept.good_until = self.now() + good_s
