"""Rewards over the running standard deviation of the discounted return, as the learner sees them.

The scale belongs to the learner alone: actors report raw rewards, and so does the run's record.
A round's own returns count before its rewards are scaled, as in Gymnasium's `NormalizeReward`,
which CleanRL uses. Unlike there a return starts at 0 with every fragment, since a fragment starts
with a reset.

Legend: T steps; B environments.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from learning.data.running_moments import RunningMoments
from learning.returns.scan import carried_back
from shared.trajectory.trajectory import Trajectory

VARIANCE_FLOOR = 1e-8
"""Added to the variance. Gymnasium's `NormalizeReward`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RewardScaler:
    """Statistics of the discounted return; never changed in place."""

    moments: RunningMoments  # of [1]
    discount: float
    bound: float
    """Largest absolute value of a scaled reward."""

    def after(self, trajectories: Sequence[Trajectory]) -> Self:
        """Return the statistics with the return of every step of `trajectories`, equally long."""
        returns = discounted_returns(
            np.concatenate([t.reward for t in trajectories], axis=1),
            np.concatenate([t.terminated | t.truncated for t in trajectories], axis=1),
            discount=self.discount,
        )
        ends = np.cumsum([t.reward.shape[1] for t in trajectories])
        parts = np.split(returns, ends[:-1], axis=1)
        rows = np.concatenate([part.reshape(-1, 1) for part in parts])
        return self.having(self.moments.including(rows))

    def having(self, moments: RunningMoments) -> Self:
        """Return the same with other moments."""
        return replace(self, moments=moments)

    def apply(self, reward: Tensor) -> Tensor:
        """Return the scaled rewards, in the shape and type of `reward`."""
        scale = 1.0 / float(np.sqrt(self.moments.variance[0] + VARIANCE_FLOOR))
        return reward.mul(scale).clamp_(-self.bound, self.bound)


def discounted_returns(
    reward: NDArray[np.float32], ended: NDArray[np.bool_], *, discount: float
) -> NDArray[np.float64]:
    """Return the discounted sum of the rewards since the episode's start, # [T, B].

    For t from 0 to T - 1: R_t = r_t + discount * (1 - ended_{t-1}) * R_{t-1}, with R_{-1} = 0.

    Args:
        reward: r_t. # [T, B]
        ended: Whether the episode ended with step t, however. # [T, B]
        discount: Gamma, in [0, 1].
    """
    carry = np.zeros(reward.shape)
    carry[1:] = np.where(ended[:-1], 0.0, discount)
    # Backwards in time: the recurrence of the steps in reversed order.
    returns: NDArray[np.float64] = carried_back(reward[::-1].astype(np.float64), carry[::-1])[::-1]
    return returns
