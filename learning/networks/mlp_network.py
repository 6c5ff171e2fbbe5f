"""The actor-critic network for vectors: two separate MLPs for the policy and the value.

No layers are shared. Derivatives are written by hand, see `learning.networks.mlp`.

Legend: N samples; O numbers of an observation; D distribution parameters.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from learning.arrays import Floats
from learning.networks import mlp
from learning.networks.actor_critic import ActorCritic, FlatGradient
from learning.networks.blocks import Layer, forward
from learning.networks.distributions import Gaussian
from learning.networks.numpy_mlp import (
    HalfParts,
    Halves,
    MlpPlaces,
    NetworkHalf,
    Parts,
    differentiate,
)
from learning.networks.step_terms import SplitLoss, StepTerms
from shared.policy.action_mask import with_mask
from shared.policy.blocks import Dense
from shared.policy.spec import PolicySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class _MlpGradient(FlatGradient):
    """A gradient over all parameters: one flat buffer, and the same memory layer by layer."""

    policy: tuple[Layer, ...]
    value: tuple[Layer, ...]
    log_std: Tensor | None
    arrays: "_Arrays | None"


class MlpActorCritic(ActorCritic):
    """Policy and value networks over flattened float observations # [N, O]."""

    def __init__(self, spec: PolicySpec, value: Sequence[Dense]) -> None:
        """Lay the network out: see `ActorCritic`."""
        self._policy_blocks = [block for block in spec.blocks if isinstance(block, Dense)]
        self._value_blocks = [*value]
        self._takes_numpy = _takes_numpy(self._policy_blocks, self._value_blocks)
        super().__init__(spec, value)

    def _look_at(self, flat: Tensor) -> None:
        """Make all parameters, by layer too, views of `flat` # [P]."""
        super()._look_at(flat)
        parameters = self.views_of(flat)
        self._policy_layers = self.layers("policy", parameters)
        self._value_layers = self.layers("value", parameters)
        self._arrays = self._arrays_in(flat)

    def new_gradient(self) -> FlatGradient:
        """Return a gradient of zeros in the parameters' layout."""
        flat = torch.zeros_like(self.flat)
        views = self.views_of(flat)
        policy, value = self.layers("policy", views), self.layers("value", views)
        return _MlpGradient(
            flat=flat,
            policy=policy,
            value=value,
            log_std=views.get("log_std"),
            arrays=self._arrays_in(flat),
        )

    def differentiate(
        self, observation: Tensor, loss: SplitLoss[Tensor], *, gradient: FlatGradient
    ) -> None:
        """Write the gradient of a loss at `observation` into `gradient`."""
        if self._arrays is not None and self._arrays.are_small(len(observation)):
            ends_with_mask = observation if self.spec.head.masked else None
            arrays = _AsArrays(loss, ends_with_mask)
            self.differentiate_arrays(observation.numpy(), arrays, gradient=gradient)
            return
        assert isinstance(gradient, _MlpGradient), "gradient of another kind of network"
        blocks = self._policy_blocks, self._value_blocks
        layers = self._policy_layers, self._value_layers
        policy, raw = mlp.forward(blocks[0], layers[0], observation)
        critic, value = mlp.forward(blocks[1], layers[1], observation)
        d_outputs = loss.policy_gradient(self.completed(raw, observation))
        d_value = loss.value_gradient(value.squeeze(1)).unsqueeze(1)
        if gradient.log_std is not None:
            width = d_outputs.shape[1] - len(gradient.log_std)
            torch.sum(d_outputs[:, width:], 0, out=gradient.log_std)
            d_outputs = d_outputs[:, :width].contiguous()
        mlp.backward(blocks[0], layers[0], policy, d_outputs, gradients=gradient.policy)
        mlp.backward(blocks[1], layers[1], critic, d_value, gradients=gradient.value)

    def array_terms(self) -> StepTerms[Floats] | None:
        """Return the distribution if both networks fit NumPy, else None."""
        if self._arrays is None or not isinstance(self.distribution, Gaussian):
            return None
        return self.distribution

    def differentiate_arrays(
        self, observation: Floats, loss: SplitLoss[Floats], *, gradient: FlatGradient
    ) -> None:
        """Write the gradient of a loss into `gradient`, in NumPy."""
        assert isinstance(gradient, _MlpGradient), "gradient of another kind of network"
        assert self._arrays is not None, "see `array_terms`"
        assert gradient.arrays is not None, "gradient of another kind of network"
        differentiate(observation, loss, self._arrays.parts, into=gradient.arrays.parts)

    def halves(self) -> tuple[NetworkHalf, NetworkHalf] | None:
        """Return where policy and value function lie in the flat parameters."""
        if not self._takes_numpy or not _is_numpys(self.flat):
            return None
        meet = int(self._value_layers[0].weight.storage_offset())
        free = self._free_log_std
        log_std = None
        if free is not None:
            start = int(free.storage_offset())
            log_std = slice(start, start + len(free))
        policy = NetworkHalf(
            start=0, end=meet, mlp=_places(self._policy_layers, 0), log_std=log_std
        )
        value = NetworkHalf(
            start=meet,
            end=len(self.flat),
            mlp=_places(self._value_layers, meet),
            log_std=None,
        )
        return policy, value

    @contextmanager
    def without_graph(self) -> Iterator[None]:
        """Also silence NumPy about numbers out of range, as torch is silent."""
        with super().without_graph(), np.errstate(all="ignore"):
            yield

    @property
    def separate_multiplications(self) -> int:
        """Multiplications per sample on the value function's way forward."""
        return sum(layer.weight.numel() for layer in self._value_layers)

    def values_at(self, parameters: Mapping[str, Tensor], observation: Tensor) -> Tensor:
        """Return the state values that these network parameters give."""
        return forward(self._value_blocks, self.layers("value", parameters), observation).squeeze(1)

    def policy_outputs(self, observation: Tensor) -> Tensor:
        """Return the distribution parameters # [N, D]."""
        raw = forward(self._policy_blocks, self._policy_layers, observation)
        return self.completed(raw, observation)

    def values(self, observation: Tensor) -> Tensor:
        """Return the state values # [N]."""
        return forward(self._value_blocks, self._value_layers, observation).squeeze(1)

    def _arrays_in(self, flat: Tensor) -> "_Arrays | None":
        """Return all parameters, or gradients, as NumPy takes them; None where it cannot."""
        halves = self.halves() if _is_numpys(flat) else None
        return None if halves is None else _Arrays(flat, halves)


class _Arrays:
    """Both networks' parameters, or gradients, as arrays over the memory of a tensor."""

    def __init__(self, flat: Tensor, halves: Halves) -> None:
        self._over = flat, halves
        self.parts: Parts = HalfParts.both(flat.numpy(), halves)

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        # A copied array would be apart from the copied tensor: a copy looks anew.
        return type(self), self._over

    def are_small(self, num_samples: int) -> bool:
        """Whether both networks are, see `OneMlp`."""
        return all(part.mlp.is_small(num_samples) for part in self.parts)


class _AsArrays:
    """A loss of tensors for arrays, over the same memory."""

    def __init__(self, loss: SplitLoss[Tensor], ends_with_mask: Tensor | None) -> None:
        """Take the minibatch's observations # [N, O] as well, if a mask of actions is in them."""
        self._loss, self._masks = loss, ends_with_mask

    def policy_gradient(self, outputs: Floats) -> Floats:
        parameters = torch.from_numpy(outputs)
        if self._masks is not None:
            parameters = with_mask(parameters, self._masks)
        return self._loss.policy_gradient(parameters).numpy()

    def value_gradient(self, value: Floats) -> Floats:
        return self._loss.value_gradient(torch.from_numpy(value)).numpy()


def _takes_numpy(policy: Sequence[Dense], value: Sequence[Dense]) -> bool:
    """Say whether NumPy can differentiate two networks: tanh layers, of equal widths in both."""
    hidden = (*policy[:-1], *value[:-1])
    plain = all(block.activation == "tanh" and not block.layer_norm for block in hidden)
    widths = [[block.outputs for block in blocks[:-1]] for blocks in (policy, value)]
    return plain and widths[0] == widths[1] != []


def _places(layers: Sequence[Layer], start: int) -> MlpPlaces:
    """Return where layers lie in the flat parameters, counted from `start`."""

    def place(parameter: Tensor) -> tuple[int, tuple[int, ...]]:
        return int(parameter.storage_offset()) - start, tuple(parameter.shape)

    return MlpPlaces(
        weights=tuple(place(layer.weight) for layer in layers),
        biases=tuple(place(layer.bias) for layer in layers),
    )


def _is_numpys(flat: Tensor) -> bool:
    return flat.device.type == "cpu" and flat.dtype == torch.float32
