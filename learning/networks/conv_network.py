"""The actor-critic network for images: one convolutional trunk for the policy and the value.

As every published Atari result, and RLlib's own, has it: what is seen is worked out once, and the
policy and the value are one linear layer each on top of it. The layers are those of
`shared.policy.conv_layers`. Pixels are divided by 255. Gradients are autograd's: convolutions are
large enough that a graph costs nothing beside them.

Images stay uint8 until they enter the network, which takes a quarter of the memory.

Legend: N samples; C, H, W an image's channels, height and width; D distribution parameters.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from learning.networks.actor_critic import (
    ActorCritic,
    FlatGradient,
    SplitLoss,
    with_log_std,
    zero_linear,
    zeroed,
)
from learning.networks.distributions import Distribution
from shared.policy.conv import MAX_PIXEL
from shared.policy.conv_layers import ConvLayers, Convolution

_CHUNK = 512
"""Images per pass where no gradient is wanted: the activations of a whole batch would be large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ConvGradient(FlatGradient):
    """A gradient over all parameters: one flat buffer, and the same memory by parameter."""

    views: dict[str, Tensor]


class ConvActorCritic(ActorCritic):
    """Policy and value over images # [N, C, H, W] uint8 (or float of the same range)."""

    def __init__(
        self,
        *,
        layers: ConvLayers,
        policy_outputs: int,
        distribution: Distribution,
        free_log_std: int | None,
    ) -> None:
        """Lay the network out with all parameters zero.

        Args:
            layers: What it looks like.
            policy_outputs: Width of the policy's last layer.
            distribution: Of the actions, with the policy's outputs as parameters.
            free_log_std: Size of a free log-standard deviation vector; None without one.
        """
        super().__init__()
        self.distribution = distribution
        self.architecture = layers
        widths = (layers.num_flat, *layers.dense)
        modules: list[nn.Module] = [_conv2d(layer) for layer in layers.convolutions]
        modules += [zero_linear(*pair) for pair in pairwise(widths)]
        self.policy = nn.ModuleList([*modules, zero_linear(widths[-1], policy_outputs)])
        self.value = nn.ModuleList([zero_linear(widths[-1], 1)])
        self.log_std = None if free_log_std is None else nn.Parameter(torch.zeros(free_log_std))
        self.requires_grad_(False)  # `differentiate` has leaves of its own
        self.flatten()

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
            raw = self.head(parameters, seen)
            raw_value = self._value(parameters, seen)
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
        return self.with_log_std(
            _in_chunks(lambda x: self.head(parameters, self.features(parameters, x)), observation)
        )

    def values(self, observation: Tensor) -> Tensor:
        """Return the state values # [N]."""
        parameters = dict(self.named_parameters())
        return _in_chunks(
            lambda x: self._value(parameters, self.features(parameters, x)), observation
        )

    def outputs_at(self, parameters: Mapping[str, Tensor], observation: Tensor) -> Tensor:
        """Return the distribution parameters that these network parameters give."""
        raw = self.head(parameters, self.features(parameters, observation))
        return with_log_std(raw, parameters.get("log_std"))

    def values_at(self, parameters: Mapping[str, Tensor], observation: Tensor) -> Tensor:
        """Return the state values that these network parameters give."""
        return self._value(parameters, self.features(parameters, observation))

    def payload_metadata(self) -> dict[str, str]:
        """Return the network's form, for the published policy."""
        shape = ",".join(map(str, self.architecture.image_shape))
        return {"network": self.architecture.name, "activation": "relu", "image_shape": shape}

    def features(self, parameters: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """Return what both heads see of the images # [N, C, H, W], # [N, features]."""
        seen = images.to(self.flat.dtype) / MAX_PIXEL
        for i, layer in enumerate(self.architecture.convolutions):
            (top, bottom), (left, right) = layer.padding
            if top or bottom or left or right:
                seen = functional.pad(seen, (left, right, top, bottom))
            weight, bias = _layer(parameters, i)
            seen = torch.relu(functional.conv2d(seen, weight, bias, stride=layer.stride))
        seen = seen.flatten(1)
        for i in range(len(self.architecture.convolutions), len(self.policy) - 1):
            seen = torch.relu(functional.linear(seen, *_layer(parameters, i)))
        return seen

    def head(self, parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
        """Return the policy's last layer on top of the features."""
        return functional.linear(features, *_layer(parameters, len(self.policy) - 1))

    def _value(self, parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
        weight, bias = parameters["value.0.weight"], parameters["value.0.bias"]
        return functional.linear(features, weight, bias).squeeze(1)


def _layer(parameters: Mapping[str, Tensor], index: int) -> tuple[Tensor, Tensor]:
    return parameters[f"policy.{index}.weight"], parameters[f"policy.{index}.bias"]


def _in_chunks(answer: Callable[[Tensor], Tensor], observation: Tensor) -> Tensor:
    return torch.cat([answer(chunk) for chunk in torch.split(observation, _CHUNK)])


def _conv2d(layer: Convolution) -> nn.Module:
    """Return a convolution, all zero and without a draw from the global generator."""
    module = nn.Conv2d(
        layer.channels, layer.filters, layer.kernel, stride=layer.stride, device="meta"
    )
    return zeroed(module)
