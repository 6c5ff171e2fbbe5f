"""The seam between what off-policy algorithms share and what each makes of a batch."""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from learning.algorithms.policy_update import StateScalars
from learning.data.batch import TrainingBatch
from learning.data.fragments import Fragments
from learning.data.normalisation import Normalisation
from learning.losses.loss_terms import LossRule


class Objective(Protocol):
    """What an algorithm makes of a batch; may have parameters and state of its own."""

    def batch(self, fragments: Fragments, normalisation: Normalisation) -> TrainingBatch:
        """Return the samples of some fragments with their advantages and value targets."""
        ...

    @property
    def rule(self) -> LossRule:
        """The loss that a batch is learned from with, now."""
        ...

    def after_batch(self, stats: Mapping[str, float]) -> dict[str, float]:
        """Take note that a batch was learned from; return stats to add to its means `stats`."""
        ...

    @property
    def step_scale(self) -> float:
        """What the step size is multiplied with, now."""
        ...

    @property
    def flats(self) -> dict[str, Tensor]:
        """Further parameters to save, in the layout of the network's: # [P] each."""
        ...

    def scalars(self) -> StateScalars:
        """Return the rest of its state."""
        ...

    def load_scalars(self, scalars: StateScalars) -> None:
        """Continue from what `scalars` returned, among others."""
        ...
