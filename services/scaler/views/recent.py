"""Answers that are costly to get, kept for some seconds for everybody who asks."""

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


@dataclass(kw_only=True, eq=False)
class _Kept(Generic[V]):
    lock: threading.Lock = field(default_factory=threading.Lock)
    value: V | None = None
    good_until: float = 0.0


@dataclass(kw_only=True, eq=False)
class Recent(Generic[K, V]):
    """Gets each answer at most once in `ttl_s`, one caller at a time. Thread-safe.

    While one caller gets it anew, or if that fails, the others are given the one before.
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
        before = kept.value
        if before is not None and self.now() < kept.good_until:
            return before
        if not kept.lock.acquire(blocking=before is None):
            assert before is not None
            return before
        try:
            return self._again(key, kept)
        finally:
            kept.lock.release()

    def _again(self, key: K, kept: _Kept[V]) -> V:
        if kept.value is not None and self.now() < kept.good_until:
            return kept.value  # somebody else got it while we waited
        try:
            kept.value = self.get(key)
        except self.fails_with:
            if kept.value is None:
                raise
        kept.good_until = self.now() + self.ttl_s
        return kept.value
