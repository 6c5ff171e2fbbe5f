"""A policy alone, of dense layers: what a detector needs of one that is trained elsewhere.

It has no value function and is not trained here; derivatives by its parameters are autograd's.

Legend: N samples; O numbers of an observation; D distribution parameters; A action size.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learning.networks.actor_critic import (
    ActorCritic,
    FlatGradient,
    SplitLoss,
    with_log_std,
    zero_linear,
)
from learning.networks.distributions import Distribution

_NO_VALUES = "a policy alone has no value function, and nothing trains it here"


class DensePolicy(ActorCritic):
    """Dense layers with tanh or ReLU between them, over observations # [N, O]."""

    def __init__(
        self,
        weights: Sequence[NDArray[np.float32]],
        biases: Sequence[NDArray[np.float32]],
        *,
        log_std: NDArray[np.float32] | None,
        activation: Literal["tanh", "relu"],
        distribution: Distribution,
    ) -> None:
        """Copy the layers.

        Args:
            weights: Of each layer # [out, in].
            biases: Of each layer # [out].
            log_std: Free log-standard deviations # [A], if they are no outputs.
            activation: What lies between the layers.
            distribution: Of the actions, with the outputs as parameters.
        """
        super().__init__()
        sizes = (weights[0].shape[1], *(len(bias) for bias in biases))
        self.distribution = distribution
        self.policy = nn.ModuleList(zero_linear(*pair) for pair in pairwise(sizes))
        self.value = nn.ModuleList()
        self.log_std = None if log_std is None else nn.Parameter(torch.tensor(log_std))
        self._activation = torch.tanh if activation == "tanh" else torch.relu
        self.requires_grad_(False)
        self.flatten()
        views = self.views_of(self.flat)
        for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            views[f"policy.{i}.weight"].copy_(torch.tensor(weight))
            views[f"policy.{i}.bias"].copy_(torch.tensor(bias))

    def policy_outputs(self, observation: Tensor) -> Tensor:
        """Return the distribution parameters # [N, D]."""
        return self.outputs_at(dict(self.named_parameters()), observation)

    def outputs_at(self, parameters: Mapping[str, Tensor], observation: Tensor) -> Tensor:
        """Return the distribution parameters # [N, D] with these parameters, by name."""
        values, last = observation, len(self.policy) - 1
        for i in range(last + 1):
            weight, bias = parameters[f"policy.{i}.weight"], parameters[f"policy.{i}.bias"]
            values = nn.functional.linear(values, weight, bias)
            values = self._activation(values) if i < last else values
        return with_log_std(values, parameters.get("log_std"))

    def new_gradient(self) -> FlatGradient:
        """Refuse."""
        raise TypeError(_NO_VALUES)

    def differentiate(
        self, observation: Tensor, loss: SplitLoss[Tensor], *, gradient: FlatGradient
    ) -> None:
        """Refuse."""
        raise TypeError(_NO_VALUES)

    def values(self, observation: Tensor) -> Tensor:
        """Refuse."""
        raise TypeError(_NO_VALUES)

    def values_at(self, parameters: Mapping[str, Tensor], observation: Tensor) -> Tensor:
        """Refuse."""
        raise TypeError(_NO_VALUES)

    def payload_metadata(self) -> dict[str, str]:
        """Refuse."""
        raise TypeError(_NO_VALUES)
