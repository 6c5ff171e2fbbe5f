"""The interface of actor-critic networks: outputs and values, and the backward pass.

All parameters are views into one flat buffer, so that an optimiser step is one fused operation
whatever the number of layers, and a gradient is one vector.

Legend: N samples; D distribution parameters; P parameters, gaps for alignment included.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learning.arrays import Floats
from learning.networks.blocks import Layer, forward
from learning.networks.distributions import Distribution, distribution_of
from learning.networks.numpy_mlp import NetworkHalf
from learning.networks.step_terms import SplitLoss, StepTerms
from shared.policy.action_mask import with_mask
from shared.policy.blocks import Block, Conv, Dense, layers_of
from shared.policy.blocks import Layer as BlockLayer
from shared.policy.spec import PolicySpec

_ALIGNMENT = 16
"""Floats (64 bytes): parameters start on cache lines, which the fast code paths of BLAS want."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatGradient:
    """A gradient over all parameters."""

    flat: Tensor  # [P]


class ActorCritic(nn.Module):
    """A policy and a value function.

    Parameters of the policy are named `policy.{i}.weight` and `policy.{i}.bias` for layers
    i = 0, 1, ... and `log_std` if there is one; all others belong to the value function alone.
    `is_of_policy` tells the two apart also where a network has names of its own.
    """

    spec: PolicySpec
    """The policy's form."""
    flat: Tensor  # [P], every parameter, in `named_parameters` order with gaps for alignment
    distribution: Distribution
    """The actions' distribution, whose parameters the policy's outputs are."""
    policy: nn.ModuleList
    """Layers with a weight and a bias each, the one that gives the outputs last."""
    value: nn.ModuleList
    """Layers of the value function; layers shared with the policy are not repeated."""
    log_std: nn.Parameter | None
    """Free log-standard deviations # [A], if they are no outputs of the network."""
    is_ours = True
    """Whether all of it is known here, so that its steps can be recorded."""

    def __init__(self, spec: PolicySpec, value: Sequence[Block]) -> None:
        """Lay the network out with all parameters zero; `build_network` initialises them.

        Args:
            spec: Of the policy.
            value: Blocks of the value function alone.
        """
        super().__init__()
        self.spec = spec
        self.distribution = distribution_of(spec.head)
        self.policy = _zeros(spec.layers)
        self.value = _zeros(layers_of(value))
        free = spec.head.log_std == "free"
        self.log_std = nn.Parameter(torch.zeros(spec.head.size)) if free else None
        self.requires_grad_(False)  # derivatives use their own leaves
        self.flatten()

    @abstractmethod
    def new_gradient(self) -> FlatGradient:
        """Return a gradient of zeros to hand to `differentiate`."""

    @abstractmethod
    def differentiate(
        self, observation: Tensor, loss: SplitLoss[Tensor], *, gradient: FlatGradient
    ) -> None:
        """Write the gradient of a loss at `observation` # [N, ...] into `gradient`.

        Args:
            observation: The minibatch's.
            loss: Of the minibatch.
            gradient: Made by this network's `new_gradient`; overwritten.
        """

    def array_terms(self) -> StepTerms[Floats] | None:
        """Return the distribution for `differentiate_arrays`; None if only torch supports it."""
        return None

    def differentiate_arrays(
        self, observation: Floats, loss: SplitLoss[Floats], *, gradient: FlatGradient
    ) -> None:
        """Do what `differentiate` does in NumPy; only where there are `array_terms`."""
        raise TypeError(f"{type(self).__name__} is not differentiated in NumPy")

    def halves(self) -> tuple[NetworkHalf, NetworkHalf] | None:
        """Return policy and value function if each could be learned without the other.

        The first begins where the flat parameters do, the second where the first ends.
        """
        return None

    @property
    def separate_multiplications(self) -> int:
        """Scalar multiplications per sample in the value function's forward pass.

        0 if it shares layers with the policy.
        """
        return 0

    @abstractmethod
    def policy_outputs(self, observation: Tensor) -> Tensor:
        """Return the action distributions' parameters # [N, D] at `observation` # [N, ...]."""

    @abstractmethod
    def values(self, observation: Tensor) -> Tensor:
        """Return the state values # [N] at `observation` # [N, ...]."""

    def outputs_at(self, parameters: Mapping[str, Tensor], observation: Tensor) -> Tensor:
        """Return `policy_outputs` with these parameters, by name, for autograd."""
        raw = forward(self.spec.blocks, self.layers("policy", parameters), observation)
        return self.completed(raw, observation, parameters.get("log_std"))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return copies of the policy's arrays, as actors load them."""
        return {
            name: parameter.detach().cpu().numpy().copy()
            for name, parameter in self.named_parameters()
            if self.is_of_policy(name)
        }

    def is_of_policy(self, name: str) -> bool:
        """Say whether a parameter of this name is the policy's, not of the value function alone."""
        return not name.startswith("value.")

    @abstractmethod
    def values_at(self, parameters: Mapping[str, Tensor], observation: Tensor) -> Tensor:
        """Return `values` with these parameters, by name, for autograd."""

    def without_graph(self) -> AbstractContextManager[object]:
        """Return the context of gradient steps: without autograd's bookkeeping they are faster."""
        return torch.inference_mode()

    def flatten(
        self, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> None:
        """Move all parameters into one new flat buffer of the given type and place."""
        size = sum(_padded(parameter.numel()) for parameter in self.parameters())
        flat = torch.zeros(size, dtype=dtype, device=device)
        for parameter, view in zip(self.parameters(), self.views_of(flat).values(), strict=True):
            view.copy_(parameter.data)
        self._look_at(flat)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        # A copy's parameters were copied one by one, apart from the copied buffer.
        self._look_at(self.flat)

    def _look_at(self, flat: Tensor) -> None:
        """Make all parameters views of `flat` # [P]."""
        views = self.views_of(flat)
        for parameter, view in zip(self.parameters(), views.values(), strict=True):
            parameter.data = view
        self.flat = flat
        self._free_log_std = views.get("log_std")

    def views_of(self, flat: Tensor) -> dict[str, Tensor]:
        """Return `flat` # [P] as one tensor per parameter, by the parameters' names."""
        views, start = {}, 0
        for name, parameter in self.named_parameters():
            end = start + parameter.numel()
            views[name] = flat[start:end].view(parameter.shape)
            start += _padded(parameter.numel())
        return views

    def layers(self, part: str, views: Mapping[str, Tensor]) -> tuple[Layer, ...]:
        """Return the layers of `policy` or `value` out of the views of a flat buffer."""
        count = len(self.policy) if part == "policy" else len(self.value)
        return tuple(
            Layer(weight=views[f"{part}.{i}.weight"], bias=views[f"{part}.{i}.bias"])
            for i in range(count)
        )

    def completed(self, raw: Tensor, observation: Tensor, log_std: Tensor | None = None) -> Tensor:
        """Return the last layer's output # [N, H] as the distribution's parameters # [N, D].

        Free log-standard deviations # [A] are appended, of these parameters or the present ones.
        Logits of actions that the observation forbids are lowered: their derivatives stay.
        """
        if self.spec.head.masked:
            return with_mask(raw, observation)
        free = self._free_log_std if log_std is None else log_std
        if free is None:
            return raw
        return torch.cat((raw, free.expand(raw.shape[0], -1)), dim=1)


def _zeros(layers: Iterable[BlockLayer]) -> nn.ModuleList:
    """Return layers, all zero and without a draw from the global generator."""
    modules = nn.ModuleList()
    for layer in layers:
        module: nn.Module
        if isinstance(layer, Dense):
            module = nn.Linear(layer.inputs, layer.outputs, device="meta")
        elif isinstance(layer, Conv):
            filters = (layer.channels, layer.filters, layer.kernel, layer.stride)
            module = nn.Conv2d(*filters, device="meta")
        else:
            module = nn.Module()
            module.weight = nn.Parameter(torch.empty(layer.weight_shape, device="meta"))
            module.bias = nn.Parameter(torch.empty(layer.weight_shape[:1], device="meta"))
        module = module.to_empty(device="cpu")
        for parameter in module.parameters():
            parameter.data.zero_()
        modules.append(module)
    return modules


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
