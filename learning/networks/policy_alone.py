"""A policy alone: what a detector needs of one that is trained elsewhere.

It has no value function and is not trained here; derivatives by its parameters are autograd's.
"""

from collections.abc import Mapping
from typing import NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
