"""The bound on the mean staleness of aggregated gradients, which falls with every update.

A gradient's staleness is the number of steps between the weights it was computed at and its
arrival. There is no bound until an update has had stale gradients: until then every gradient is
applied on arrival. That update's staleness sets the bound. k updates later::

    paper: beta_k = max(1, delta_max d^k)          delta_max the update's largest staleness
    code:  beta_k = clip(int(delta_max d^(k-1)) + 1, 1, delta_max)
                                                   delta_max = int(the update's mean staleness) + 1

An update learns from one batch: the published code's round.

The floor of 1 in the paper's form is ours: below it two functions would wait for each other.
Stellaris (SC 2024); `stellaris.py:82` of its demonstration.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from shared.contracts.learner_functions import Form


@dataclass(frozen=True, slots=True, kw_only=True)
class StalenessBound:
    """The bound and its inputs; never changed in place."""

    form: Form
    decay: float
    first: int = 0
    """delta_max; 0 until an update has shown it."""
    updates: int = 0
    """Updates since then."""

    @property
    def beta(self) -> float:
        """The bound in the present update; infinite without one."""
        if self.form == "off" or not self.first:
            return math.inf
        if self.form == "paper":
            return max(1.0, self.first * self.decay**self.updates)
        bound = int(self.first * self.decay ** (self.updates - 1)) + 1
        return float(min(max(bound, 1), self.first))

    @property
    def oldest(self) -> float:
        """Staleness beyond which a gradient is a straggler's; infinite while unknown."""
        return math.inf if self.form == "off" or not self.first else float(self.first)

    def after(self, staleness: Sequence[int]) -> Self:
        """Return the bound of the next update, given the staleness of this one's gradients."""
        if self.first:
            return replace(self, updates=self.updates + 1)
        if self.form == "off" or not any(staleness):
            return self
        mean = sum(staleness) / len(staleness)
        first = int(mean) + 1 if self.form == "code" else max(staleness)
        return replace(self, first=first, updates=1)
