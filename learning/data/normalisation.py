"""The running statistics that belong to one policy version: of observations and of returns.

They are learned like the weights and travel with them: a version is published with the statistics
of all rounds before it, acts with these, and is updated with these. Statistics are never changed in
place, so versions can share them.

Legend: O numbers per observation, F of them normalised, the last ones; T steps; B environments.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learning.data.running_moments import RunningMoments
from learning.returns.scan import carried_back
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.common import CommonHyperparameters
from shared.trajectory.trajectory import Trajectory

VARIANCE_FLOOR = 1e-8
"""Added to each variance, as in Gymnasium's `NormalizeObservation` and `NormalizeReward`, which
CleanRL uses."""
_OBSERVATIONS, _RETURNS = "observation_moments.", "return_moments."
PRESENT = "normalisation."
"""Prefix of their names in the state of a learner with a second version of them."""
"""Prefix of saved moments' names."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ObservationNormaliser:
    """Normalised observations for a policy; before the first round they are only bounded.

    Images at their beginning are left unchanged.
    """

    moments: RunningMoments  # of [F]
    bound: float
    """Largest absolute value of a normalised number."""
    mask_size: int = 0
    """Number of last numbers that are a mask of actions, and left unchanged."""

    def after(self, trajectories: Sequence[Trajectory]) -> Self:
        """Return the statistics with every observation of `trajectories` that was acted on."""
        size = len(self.moments.mean)
        rows = [t.observation[:-1].reshape(t.num_steps, -1)[:, -size:] for t in trajectories]
        return replace(self, moments=self.moments.including(np.concatenate(rows)))

    def apply(self, observation: Tensor) -> Tensor:
        """Return the policy's view of `observation` # [..., O], as float32.

        Operations and their order are those of `ObservationScale`, so the bits are the same.
        """
        mean, scale = (torch.from_numpy(a).to(observation.device) for a in self.mean_and_scale())
        numbers = observation[..., -len(mean) :].sub(mean).mul_(scale)
        numbers = numbers.clamp_(-self.bound, self.bound)
        if numbers.shape == observation.shape:
            return numbers
        return torch.cat((observation[..., : -len(mean)].float(), numbers), -1)

    def mean_and_scale(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the offset that is subtracted from observations, and the factor after it # [F]."""
        scale = 1.0 / np.sqrt(self.moments.variance + VARIANCE_FLOOR)
        if not self.moments.count:
            scale = np.ones_like(scale)
        mean, masked = self.moments.mean.copy(), len(scale) - self.mask_size
        mean[masked:], scale[masked:] = 0.0, 1.0
        return mean.astype(np.float32), scale.astype(np.float32)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RewardScaler:
    """Rewards divided by the running standard deviation of the discounted return.

    The scale belongs to the learner alone: actors report raw rewards, and so does the run's record.
    A round's own returns count before its rewards are scaled, as in Gymnasium's `NormalizeReward`.
    A return continues with its episode, from fragment to fragment.
    """

    moments: RunningMoments  # of [1]
    discount: float
    bound: float
    """Largest absolute value of a scaled reward."""

    def after(self, trajectories: Sequence[Trajectory]) -> Self:
        """Return the statistics with the return of every step of `trajectories`, equally long."""
        returns = discounted_returns(
            np.concatenate([t.reward for t in trajectories], axis=1),
            np.concatenate([t.terminated | t.truncated for t in trajectories], axis=1),
            earlier=np.concatenate([_earlier_returns(t) for t in trajectories]),
            discount=self.discount,
        )
        ends = np.cumsum([t.num_envs for t in trajectories])
        parts = np.split(returns, ends[:-1], axis=1)
        rows = np.concatenate([part.reshape(-1, 1) for part in parts])
        return replace(self, moments=self.moments.including(rows))

    def apply(self, reward: Tensor) -> Tensor:
        """Return the scaled rewards, in the shape and type of `reward`."""
        scale = 1.0 / float(np.sqrt(self.moments.variance[0] + VARIANCE_FLOOR))
        return reward.mul(scale).clamp_(-self.bound, self.bound)


def discounted_returns(
    reward: NDArray[np.float32],
    ended: NDArray[np.bool_],
    *,
    earlier: NDArray[np.float64],
    discount: float,
) -> NDArray[np.float64]:
    """Return the discounted sum of the rewards since the episode's start, # [T, B].

    For t from 0 to T - 1: R_t = r_t + discount * (1 - ended_{t-1}) * R_{t-1}; R_{-1} is `earlier`,
    and no end came before it.

    Args:
        reward: r_t. # [T, B]
        ended: Whether the episode ended with step t, however. # [T, B]
        earlier: Return of each episode before the first step, 0 if it begins with it. # [B]
        discount: Gamma, in [0, 1].
    """
    carry = np.zeros(reward.shape)
    carry[1:] = np.where(ended[:-1], 0.0, discount)
    rewards = reward.astype(np.float64)
    rewards[0] += discount * earlier
    # Backwards in time: the recurrence of the steps in reversed order.
    returns: NDArray[np.float64] = carried_back(rewards[::-1], carry[::-1])[::-1]
    return returns


def _earlier_returns(trajectory: Trajectory) -> NDArray[np.float64]:
    if not trajectory.earlier_returns:
        return np.zeros(trajectory.num_envs)
    return np.array(trajectory.earlier_returns, np.float64)


S = TypeVar("S", ObservationNormaliser, RewardScaler)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Normalisation:
    """The statistics of one version, None for data that is not normalised."""

    observations: ObservationNormaliser | None = None
    rewards: RewardScaler | None = None

    @classmethod
    def initial(cls, environment: EnvironmentSpec, rule: CommonHyperparameters) -> Self:
        """Return a new job's statistics: of no data yet, and None for images."""
        size = environment.observation.num_numbers
        return cls(
            observations=ObservationNormaliser(
                moments=RunningMoments.empty(size),
                bound=rule.observation_clip,
                mask_size=environment.mask_size,
            )
            if rule.observation_normalisation and size
            else None,
            rewards=RewardScaler(
                moments=RunningMoments.empty(1), discount=rule.discount, bound=rule.reward_clip
            )
            if rule.reward_scaling
            else None,
        )

    def after(self, trajectories: Sequence[Trajectory]) -> Self:
        """Return the statistics with a round's trajectories, in a fixed order.

        Sums of floats depend on their order, so equal runs need equal orders.
        """
        return type(self)(
            observations=self.observations and self.observations.after(trajectories),
            rewards=self.rewards and self.rewards.after(trajectories),
        )

    def seen(self, observation: Tensor) -> Tensor:
        """Return the policy's view of `observation`."""
        return self.observations.apply(observation) if self.observations else observation

    def scaled(self, reward: Tensor) -> Tensor:
        """Return the learner's scaled `reward`."""
        return self.rewards.apply(reward) if self.rewards else reward

    def payload(self) -> tuple[dict[str, NDArray[np.float32]], dict[str, str]]:
        """Return the arrays and metadata that a published policy carries."""
        if self.observations is None:
            return {}, {}
        mean, scale = self.observations.mean_and_scale()
        arrays = {"observation_mean": mean, "observation_scale": scale}
        return arrays, {"observation_clip": repr(self.observations.bound)}

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return a copy of everything needed to resume exactly, by name."""
        parts = {_OBSERVATIONS: self.observations, _RETURNS: self.rewards}
        return {
            prefix + name: array
            for prefix, part in parts.items()
            if part is not None
            for name, array in part.moments.arrays().items()
        }

    def restored(self, arrays: Mapping[str, NDArray[np.generic]]) -> Self:
        """Return these statistics with the moments that `arrays` returned.

        Args:
            arrays: May hold others besides.

        Raises:
            ValueError: The numbers are not those of moments.
        """
        return type(self)(
            observations=_restored(self.observations, arrays, _OBSERVATIONS),
            rewards=_restored(self.rewards, arrays, _RETURNS),
        )

    def begun_from(self, arrays: Mapping[str, NDArray[np.generic]]) -> Self:
        """Return these statistics with the moments of another job's state, if it has them.

        Raises:
            ValueError: Observations are normalised in one of the two jobs only, or others.
        """
        found = {name.removeprefix(PRESENT): array for name, array in arrays.items()}
        own = self.arrays()
        for name in own.keys() ^ found.keys():
            if name.startswith(_OBSERVATIONS):
                raise ValueError(
                    "observation_normalisation must be as in the job whose policy is begun with"
                )
        for name in own.keys() & found.keys():
            if own[name].shape != found[name].shape:
                raise ValueError(
                    f"state array {name!r} is {list(found[name].shape)}, this job needs "
                    f"{list(own[name].shape)}"
                )
        return self.restored(own | {name: found[name] for name in own.keys() & found.keys()})


def _restored(part: S | None, arrays: Mapping[str, NDArray[np.generic]], prefix: str) -> S | None:
    return part and replace(part, moments=RunningMoments.from_arrays(arrays, prefix=prefix))
