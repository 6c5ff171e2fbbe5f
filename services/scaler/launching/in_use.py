"""When so many environments were last in use at a time."""

import math


class InUse:
    """Remembers of every number when at least as many were last under way.

    A later and larger number makes an earlier one irrelevant, so what is kept has falling numbers
    and rising times, and is never longer than the largest number.
    """

    def __init__(self) -> None:
        self._peaks: list[tuple[int, float]] = []

    def note(self, num: int, at: float) -> None:
        """Note that so many are under way."""
        while self._peaks and self._peaks[-1][0] <= num:
            self._peaks.pop()
        self._peaks.append((num, at))

    def last(self, num: int) -> float:
        """Return when at least `num` last were; minus infinity if never."""
        return max((at for peak, at in self._peaks if peak >= num), default=-math.inf)
