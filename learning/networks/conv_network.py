"""The actor-critic network for images: one convolutional trunk for the policy and the value.

As every published Atari result, and RLlib's own, has it: what is seen is worked out once, and the
policy and the value are one linear layer each on top of it. The layers are those of
`shared.policy.blocks`. Pixels are divided by 255. Gradients are autograd's: convolutions are
large enough that a graph costs nothing beside them.

Images stay uint8 until they enter the network, which takes a quarter of the memory.

Legend: N samples; C, H, W an image's channels, height and width; D distribution parameters.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from learning.networks.actor_critic import ActorCritic, FlatGradient, SplitLoss
from learning.networks.blocks import forward
from shared.policy.blocks import Dense
from shared.policy.spec import PolicySpec

_CHUNK = 512
"""Images per pass where no gradient is wanted: the activations of a whole batch would be large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ConvGradient(FlatGradient):
    """A gradient over all parameters: one flat buffer, and the same memory by parameter."""

    views: dict[str, Tensor]


class ConvActorCritic(ActorCritic):
    """Policy and value over images # [N, C, H, W] uint8 (or float of the same range)."""

    def __init__(self, spec: PolicySpec, value: Dense) -> None:
        """Lay the network out: the value is one layer beside the policy's last."""
        self._trunk, self._heads = spec.blocks[:-1], (spec.blocks[-1:], (value,))
        super().__init__(spec, (value,))

    def without_graph(self) -> AbstractContextManager[object]:
        """Return a context in which `differentiate` can turn autograd on again."""
        return torch.no_grad()

    def new_gradient(self) -> FlatGradient:
        """Return a gradient of zeros in the parameters' layout."""
        flat = torch.zeros_like(self.flat)
        return _ConvGradient(flat=flat, views=self.views_of(flat))

    def differentiate(
        self, observation: Tensor, loss: SplitLoss[Tensor], *, gradient: FlatGradient
    ) -> None:
        """Write the gradient of a loss at `observation` into `gradient`."""
        assert isinstance(gradient, _ConvGradient), "gradient of another kind of network"
        parameters = {
            name: parameter.detach().requires_grad_() for name, parameter in self.named_parameters()
        }
        parameters.pop("log_std", None)
        with torch.enable_grad():
            seen = self.features(parameters, observation)
            raw, raw_value = self._outputs(parameters, seen), self._values(parameters, seen)
        d_outputs = loss.policy_gradient(self.with_log_std(raw.detach()))
        d_value = loss.value_gradient(raw_value.detach())
        width = raw.shape[1]
        if self.log_std is not None:
            torch.sum(d_outputs[:, width:], 0, out=gradient.views["log_std"])
        derivatives = torch.autograd.grad(
            (raw, raw_value), list(parameters.values()), (d_outputs[:, :width], d_value)
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

    def values_at(self, parameters: Mapping[str, Tensor], observation: Tensor) -> Tensor:
        """Return the state values that these network parameters give."""
        return self._values(parameters, self.features(parameters, observation))

    def features(self, parameters: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """Return what both heads see of the images # [N, C, H, W], # [N, features]."""
        return forward(self._trunk, self.layers("policy", parameters)[:-1], images)

    def _outputs(self, parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
        return forward(self._heads[0], self.layers("policy", parameters)[-1:], features)

    def _values(self, parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
        return forward(self._heads[1], self.layers("value", parameters), features).squeeze(1)


def _in_chunks(answer: Callable[[Tensor], Tensor], observation: Tensor) -> Tensor:
    return torch.cat([answer(chunk) for chunk in torch.split(observation, _CHUNK)])
