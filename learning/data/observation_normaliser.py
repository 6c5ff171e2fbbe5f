"""Running statistics of the raw observations, and what a policy sees of them.

An update learns from observations as the policy that acted saw them, so with the statistics its
version was published with; the rows of the round count from the next version on. Before the first
round there are none, and observations are only bounded.

Legend: O numbers per observation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learning.data.running_moments import RunningMoments
from shared.trajectory.trajectory import Trajectory

VARIANCE_FLOOR = 1e-8
"""Added to each variance. Gymnasium's `NormalizeObservation`, which CleanRL uses."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ObservationNormaliser:
    """The statistics of one policy version; never changed in place."""

    moments: RunningMoments  # of [O]
    bound: float
    """Largest absolute value of a normalised number."""

    def after(self, trajectories: Sequence[Trajectory]) -> Self:
        """Return the statistics with every observation of `trajectories` that was acted on."""
        rows = [t.observation[:-1].reshape(t.num_steps, -1) for t in trajectories]
        return self.having(self.moments.including(np.concatenate(rows)))

    def having(self, moments: RunningMoments) -> Self:
        """Return the same with other moments."""
        return replace(self, moments=moments)

    def apply(self, observation: Tensor) -> Tensor:
        """Return what the policy sees of `observation` # [..., O] float32.

        The same operations in the same order as in `ObservationScale`, so the same bits.
        """
        mean, scale = (torch.from_numpy(a).to(observation.device) for a in self._mean_and_scale())
        return observation.sub(mean).mul_(scale).clamp_(-self.bound, self.bound)

    def payload(self) -> tuple[dict[str, NDArray[np.float32]], dict[str, str]]:
        """Return the arrays and metadata that a published policy carries."""
        mean, scale = self._mean_and_scale()
        arrays = {"observation_mean": mean, "observation_scale": scale}
        return arrays, {"observation_clip": repr(self.bound)}

    def _mean_and_scale(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        scale = 1.0 / np.sqrt(self.moments.variance + VARIANCE_FLOOR)
        if not self.moments.count:
            scale = np.ones_like(scale)
        return self.moments.mean.astype(np.float32), scale.astype(np.float32)
