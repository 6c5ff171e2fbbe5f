"""A policy without a value function, for detectors: it is trained elsewhere.

It has no value function and is not trained here; derivatives by its parameters are autograd's.
"""

import copy
from collections.abc import Mapping
from typing import NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learning.networks.actor_critic import ActorCritic
from shared.policy.spec import PolicySpec


class PolicyAlone(ActorCritic):
    """A published policy of whatever blocks."""

    def __init__(self, spec: PolicySpec, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        """Copy the arrays of the layers, and free deviations, by their names when published."""
        super().__init__(spec, ())
        for name, view in self.views_of(self.flat).items():
            view.copy_(torch.tensor(arrays[name]))

    def policy_outputs(self, observation: Tensor) -> Tensor:
        """Return the distribution parameters # [N, D]."""
        return self.outputs_at(dict(self.named_parameters()), observation)

    def _refuse(self, *_given: object, **_more: object) -> NoReturn:
        raise TypeError("a policy alone has no value function, and nothing trains it here")

    new_gradient = differentiate = values = values_at = _refuse


class ModuleAlone(PolicyAlone):
    """A torch module that was published as a graph."""

    def __init__(
        self, spec: PolicySpec, arrays: Mapping[str, NDArray[np.generic]], module: nn.Module
    ) -> None:
        """Copy the module, and free deviations out of the arrays."""
        super().__init__(spec, arrays)
        self.module = copy.deepcopy(module).requires_grad_(False)
        self.flatten()
        named = {name: each.detach().requires_grad_() for name, each in self.named_parameters()}
        with torch.enable_grad():
            outputs = self.outputs_at(named, torch.zeros(1, *spec.observation_shape))
        found = torch.autograd.grad(outputs.sum(), list(named.values()), allow_unused=True)
        self._used = {name for name, each in zip(named, found, strict=True) if each is not None}

    def is_of_policy(self, name: str) -> bool:
        """Say whether the outputs depend on a parameter: a module may have others."""
        return name in self._used

    def forward(self, observation: Tensor) -> Tensor:
        """Return the module's outputs # [N, H]."""
        outputs: Tensor = self.module(observation.to(self.flat.dtype))
        return outputs

    def outputs_at(self, parameters: Mapping[str, Tensor], observation: Tensor) -> Tensor:
        """Return the distribution parameters # [N, D] that these parameters give."""
        raw: Tensor = torch.func.functional_call(self, dict(parameters), (observation,))
        return self.completed(raw, observation, parameters.get("log_std"))
