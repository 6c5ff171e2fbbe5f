"""When some number of environments was last in use at the same time."""

import math


class InUse:
    """For every number, the last time when at least as many were in use.

    A later and larger number makes an earlier one irrelevant, so what is kept has falling numbers
    and rising times, and is never longer than the largest number.
    """

    def __init__(self) -> None:
        self._peaks: list[tuple[int, float]] = []

    def note(self, num: int, at: float) -> None:
        """Note the current number."""
        while self._peaks and self._peaks[-1][0] <= num:
            self._peaks.pop()
        self._peaks.append((num, at))

    def last(self, num: int) -> float:
        """Return when at least `num` were last in use; minus infinity if never."""
        return max((at for peak, at in self._peaks if peak >= num), default=-math.inf)
