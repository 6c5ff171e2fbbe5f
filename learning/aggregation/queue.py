"""The queue of gradients that wait for aggregation, and the state of all requests.

Pure: requests and optimiser steps are elsewhere. Equal arrivals in equal order give equal answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from learning.aggregation.weighting import Arrived


@dataclass(slots=True, kw_only=True)
class GradientQueue:
    """Gradients in order of arrival."""

    full: int
    """Number that is aggregated at any staleness."""
    beta: float
    """Bound on the mean staleness of fewer."""
    oldest: float
    """Staleness beyond which a gradient is dropped."""
    waiting: list[Arrived] = field(default_factory=list)
    num_stale: int = 0
    """Dropped so far."""

    def add(self, gradient: Arrived, clock: int) -> int | None:
        """Add a gradient, with `clock` steps taken so far.

        Returns:
            Its staleness on arrival; None if it is dropped.
        """
        staleness = clock - gradient.base
        if staleness > self.oldest:
            self.num_stale += 1
            return None
        self.waiting.append(gradient)
        return staleness

    def staleness(self, clock: int) -> list[int]:
        """Return the present staleness of each queued gradient."""
        return [clock - gradient.base for gradient in self.waiting]

    def ready(self, clock: int) -> bool:
        """Whether to aggregate the queued gradients."""
        if not self.waiting:
            return False
        ages = self.staleness(clock)
        return sum(ages) / len(ages) <= self.beta or len(ages) >= self.full

    def take(self) -> Sequence[Arrived]:
        """Return all queued gradients and empty the queue."""
        taken, self.waiting = self.waiting, []
        return taken
