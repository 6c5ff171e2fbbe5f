"""The seam between an algorithm and its gradient steps."""

from collections.abc import Mapping
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from learning.losses.loss_terms import LossRule
from learning.networks.actor_critic import ActorCritic
from learning.updates.optimiser import FlatAdam
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.impact import ImpactHyperparameters
from shared.hyperparameters.impala import ImpalaHyperparameters
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.trajectory.columns import Columns

PolicyGradientHyperparameters: TypeAlias = (
    PpoHyperparameters | ImpactHyperparameters | ImpalaHyperparameters
)
"""Of an algorithm whose policy and values are one network with one loss."""


class Steps(Protocol):
    """Takes all gradient steps over a batch.

    `NetworkSteps` in this process, `RankedSteps` in several, `FunctionSteps` on functions.
    """

    @property
    def adam(self) -> FlatAdam:
        """The optimiser, of the whole network."""
        ...

    def take(
        self,
        batch: Columns[Tensor],
        rule: LossRule,
        *,
        generator: torch.Generator,
    ) -> dict[str, float]:
        """Take all steps over a batch; return what `NetworkSteps.take` does."""
        ...

    def scalars(self) -> dict[str, bool | int | float | str]:
        """Return the state to save beside the optimiser."""
        ...

    def load_scalars(self, scalars: Mapping[str, bool | int | float | str]) -> None:
        """Continue from what `scalars` returned, among others."""
        ...


class StepsBuilder(Protocol):
    """Makes the steps of one network."""

    def __call__(
        self,
        network: ActorCritic,
        environment: EnvironmentSpec,
        hyperparameters: PolicyGradientHyperparameters,
        /,
    ) -> Steps:
        """Return the steps for a job's hyper-parameters, without moments."""
        ...
