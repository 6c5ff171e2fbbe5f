"""The queue of gradients that wait to be aggregated, and the account of all that were asked for.

Pure: who asks for gradients and who steps along them are elsewhere. Equal arrivals in equal order
give equal answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from learning.aggregation.weighting import Arrived


@dataclass(slots=True, kw_only=True)
class GradientQueue:
    """Gradients in the order they came."""

    full: int
    """How many are aggregated however stale they are."""
    beta: float
    """Bound on their mean staleness otherwise."""
    oldest: float
    """Staleness beyond which one is dropped."""
    waiting: list[Arrived] = field(default_factory=list)
    num_stale: int = 0
    """Dropped so far."""

    def add(self, gradient: Arrived, clock: int) -> int | None:
        """Take a gradient in, with `clock` steps taken so far.

        Returns:
            Its staleness on arrival; None where it is dropped.
        """
        staleness = clock - gradient.base
        if staleness > self.oldest:
            self.num_stale += 1
            return None
        self.waiting.append(gradient)
        return staleness

    def staleness(self, clock: int) -> list[int]:
        """Return the staleness of each that waits, now."""
        return [clock - gradient.base for gradient in self.waiting]

    def ready(self, clock: int) -> bool:
        """Whether those that wait are to be aggregated."""
        if not self.waiting:
            return False
        ages = self.staleness(clock)
        return sum(ages) / len(ages) <= self.beta or len(ages) >= self.full

    def take(self) -> Sequence[Arrived]:
        """Return all that wait; none waits then."""
        taken, self.waiting = self.waiting, []
        return taken
