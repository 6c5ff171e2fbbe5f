"""Normalised observations for Stable-Baselines3, with statistics among the policy's weights.

Legend: `T` steps of a fragment, `n` columns, `F` numbers of an observation.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.torch_layers import FlattenExtractor

from nitro.pool.policy import Policy

_CLIP = 10.0
"""Clipping range of normalised observations in standard deviations, as in `VecNormalize`."""
_EPSILON = 1e-8


class NormalisedObservations(FlattenExtractor):  # type: ignore[misc] # the library has no types
    """Normalises observations by running statistics, saved with the policy's weights."""

    def __init__(self, observation_space: spaces.Box) -> None:
        super().__init__(observation_space)
        self.register_buffer("mean", torch.zeros(self.features_dim))
        self.register_buffer("scale", torch.ones(self.features_dim))
        self.register_buffer("moments", torch.zeros(2, self.features_dim, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Return the networks' input, as actors compute it."""
        flat = super().forward(observations)
        return torch.clamp((flat - self.mean) * self.scale, -_CLIP, _CLIP)

    def learn(self, observations: NDArray[Any]) -> None:
        """Update the statistics with observations [T, n, F]."""
        running = RunningMeanStd(epsilon=float(self.count) or 1e-4, shape=(self.features_dim,))
        if self.count > 0:
            running.mean, running.var = self.moments.cpu().numpy().copy()
        running.update(observations.reshape(-1, self.features_dim))
        self.count.fill_(running.count)
        self.moments.copy_(torch.as_tensor(np.stack([running.mean, running.var])))
        self.mean.copy_(torch.as_tensor(running.mean))
        self.scale.copy_(torch.as_tensor(1.0 / np.sqrt(running.var + _EPSILON)))

    def normalised(self, policy: Policy) -> Policy:
        """Return the policy with these statistics, for actors."""
        mean, scale = (part.cpu().numpy().copy() for part in (self.mean, self.scale))
        return replace(
            policy, observation_mean=mean, observation_scale=scale, observation_clip=_CLIP
        )
