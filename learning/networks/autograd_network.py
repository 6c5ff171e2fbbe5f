"""An actor-critic network whose derivatives are autograd's.

Legend: N samples; D distribution parameters.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from learning.networks.actor_critic import ActorCritic, FlatGradient
from learning.networks.blocks import forward
from learning.networks.step_terms import SplitLoss
from shared.policy.blocks import Block
from shared.policy.spec import PolicySpec

_CHUNK = 512
"""Observations per pass without a gradient: a whole batch's activations would be large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ViewedGradient(FlatGradient):
    """A gradient over all parameters: one flat buffer, and the same memory by parameter."""

    views: dict[str, Tensor]


class AutogradActorCritic(ActorCritic):
    """A subclass defines both parts as functions of given parameters."""

    @abstractmethod
    def both_at(
        self, parameters: Mapping[str, Tensor], observation: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the policy's last layer # [N, H] and the state values # [N]."""

    def without_graph(self) -> AbstractContextManager[object]:
        """Return a context in which `differentiate` can turn autograd on again."""
        return torch.no_grad()

    def new_gradient(self) -> FlatGradient:
        """Return a gradient of zeros in the parameters' layout."""
        flat = torch.zeros_like(self.flat)
        return _ViewedGradient(flat=flat, views=self.views_of(flat))

    def differentiate(
        self, observation: Tensor, loss: SplitLoss[Tensor], *, gradient: FlatGradient
    ) -> None:
        """Write the gradient of a loss at `observation` into `gradient`."""
        assert isinstance(gradient, _ViewedGradient), "gradient of another kind of network"
        parameters = {
            name: parameter.detach().requires_grad_() for name, parameter in self.named_parameters()
        }
        parameters.pop("log_std", None)
        with torch.enable_grad():
            raw, raw_value = self.both_at(parameters, observation)
        d_outputs = loss.policy_gradient(self.completed(raw.detach(), observation))
        d_value = loss.value_gradient(raw_value.detach())
        width = raw.shape[1]
        if self.log_std is not None:
            torch.sum(d_outputs[:, width:], 0, out=gradient.views["log_std"])
        derivatives = torch.autograd.grad(
            (raw, raw_value),
            list(parameters.values()),
            (d_outputs[:, :width], d_value),
            materialize_grads=True,  # a user's own network may have unused parameters
        )
        for name, derivative in zip(parameters, derivatives, strict=True):
            gradient.views[name].copy_(derivative)

    def policy_outputs(self, observation: Tensor) -> Tensor:
        """Return the distribution parameters # [N, D]."""
        parameters = dict(self.named_parameters())
        return _in_chunks(lambda x: self.outputs_at(parameters, x), observation)

    def values(self, observation: Tensor) -> Tensor:
        """Return the state values # [N]."""
        parameters = dict(self.named_parameters())
        return _in_chunks(lambda x: self.values_at(parameters, x), observation)


class BlocksActorCritic(AutogradActorCritic):
    """Two networks of any blocks without shared layers."""

    def __init__(self, spec: PolicySpec, value: Sequence[Block]) -> None:
        """Lay the network out: see `ActorCritic`."""
        self._value_blocks = tuple(value)
        super().__init__(spec, value)

    def both_at(
        self, parameters: Mapping[str, Tensor], observation: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the policy's last layer # [N, H] and the state values # [N]."""
        raw = forward(self.spec.blocks, self.layers("policy", parameters), observation)
        return raw, self.values_at(parameters, observation)

    def values_at(self, parameters: Mapping[str, Tensor], observation: Tensor) -> Tensor:
        """Return the state values that these network parameters give."""
        return forward(self._value_blocks, self.layers("value", parameters), observation).squeeze(1)


def _in_chunks(answer: Callable[[Tensor], Tensor], observation: Tensor) -> Tensor:
    return torch.cat([answer(chunk) for chunk in torch.split(observation, _CHUNK)])
