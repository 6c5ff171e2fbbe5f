"""The seam between an algorithm and whoever takes its gradient steps."""

from collections.abc import Mapping
from typing import Protocol

import torch

from learning.data.batch import TrainingBatch
from learning.losses.loss_terms import LossRule
from learning.networks.actor_critic import ActorCritic
from learning.updates.optimiser import AdamRule, FlatAdam


class Steps(Protocol):
    """Takes all gradient steps over a batch: `NetworkSteps` here, `FunctionSteps` on functions."""

    @property
    def adam(self) -> FlatAdam:
        """The optimiser, of the whole network."""
        ...

    def take(
        self,
        batch: TrainingBatch,
        rule: LossRule,
        *,
        generator: torch.Generator,
        policy_version: int,
    ) -> dict[str, float]:
        """Take all steps over a batch; return what `NetworkSteps.take` does."""
        ...

    def scalars(self) -> dict[str, bool | int | float | str]:
        """Return what is to be saved beside the optimiser."""
        ...

    def load_scalars(self, scalars: Mapping[str, bool | int | float | str]) -> None:
        """Go on from what `scalars` returned, among others."""
        ...


class StepsBuilder(Protocol):
    """Makes the steps of one network."""

    def __call__(
        self, network: ActorCritic, *, adam: AdamRule, num_epochs: int, normalise: bool
    ) -> Steps:
        """Return them, without moments; see `NetworkSteps`."""
        ...
