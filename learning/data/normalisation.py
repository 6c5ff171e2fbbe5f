"""The running statistics that belong to one policy version: of observations and of returns.

They are learned like the weights and travel with them: a version is published with the statistics
of all rounds before it, acts with these, and is updated with these.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from learning.data.observation_normaliser import ObservationNormaliser
from learning.data.reward_scaler import RewardScaler
from learning.data.running_moments import RunningMoments
from shared.contracts.environment_spec import EnvironmentSpec
from shared.trajectory.trajectory import Trajectory


class NormalisationRule(Protocol):
    """The hyper-parameters that say what is normalised."""

    @property
    def discount(self) -> float:
        """Gamma, in [0, 1]."""

    @property
    def observation_normalisation(self) -> bool:
        """Whether observations are."""

    @property
    def observation_clip(self) -> float:
        """Largest absolute value of a normalised number."""

    @property
    def reward_scaling(self) -> bool:
        """Whether rewards are."""

    @property
    def reward_clip(self) -> float:
        """Largest absolute value of a scaled reward."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Normalisation:
    """The statistics of one version, None for what is left as it is; never changed in place."""

    observations: ObservationNormaliser | None
    rewards: RewardScaler | None

    @classmethod
    def initial(cls, environment: EnvironmentSpec, rule: NormalisationRule) -> Self:
        """Return what a job starts with: statistics of nothing, and none at all of images."""
        size = math.prod(environment.observation.shape)
        return cls(
            observations=ObservationNormaliser(
                moments=RunningMoments.empty(size), bound=rule.observation_clip
            )
            if rule.observation_normalisation and not environment.observation.is_image
            else None,
            rewards=RewardScaler(
                moments=RunningMoments.empty(1), discount=rule.discount, bound=rule.reward_clip
            )
            if rule.reward_scaling
            else None,
        )

    def after(self, trajectories: Sequence[Trajectory]) -> Self:
        """Return the statistics with a round's trajectories, in an order that is always the same.

        Sums of floats depend on their order, so equal runs need equal orders.
        """
        return type(self)(
            observations=self.observations and self.observations.after(trajectories),
            rewards=self.rewards and self.rewards.after(trajectories),
        )

    def payload(self) -> tuple[dict[str, NDArray[np.float32]], dict[str, str]]:
        """Return the arrays and metadata that a published policy carries."""
        return self.observations.payload() if self.observations else ({}, {})

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return a copy of everything needed to go on exactly, by name."""
        return {
            f"{part}.{name}": array
            for part, moments in self._moments().items()
            for name, array in moments.arrays().items()
        }

    def restored(self, arrays: Mapping[str, NDArray[np.generic]]) -> Self:
        """Return these statistics with the moments that `arrays` returned.

        Args:
            arrays: May hold others besides.

        Raises:
            ValueError: The numbers are not those of moments.
        """
        moments = {
            part: RunningMoments.from_arrays(
                {name: arrays[f"{part}.{name}"] for name in own.arrays()}
            )
            for part, own in self._moments().items()
        }
        return type(self)(
            observations=self.observations
            and self.observations.having(moments["observation_moments"]),
            rewards=self.rewards and self.rewards.having(moments["return_moments"]),
        )

    def _moments(self) -> dict[str, RunningMoments]:
        parts = {"observation_moments": self.observations, "return_moments": self.rewards}
        return {name: part.moments for name, part in parts.items() if part is not None}
