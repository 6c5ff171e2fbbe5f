"""The passes of `learning.networks.mlp` through one network in NumPy, without torch.

On a CPU NumPy needs a third of torch's time to begin an operation, and holds the interpreter for
less time, too. With layers of 64 that is half of a gradient step.

Legend: N samples; O numbers of an observation; L hidden layers; A action size.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from learning.arrays import Floats
from learning.networks.step_terms import SplitLoss


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseArrays:
    """A dense layer; any array may be a view."""

    weight: Floats  # [out, in]
    bias: Floats  # [1, out]


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpPlaces:
    """Where one network's parameters lie in a flat array, as (start, shape) each."""

    weights: tuple[tuple[int, tuple[int, ...]], ...]
    biases: tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkHalf:
    """Where one of two networks that share nothing lies in the flat parameters."""

    start: int
    end: int
    mlp: MlpPlaces
    """Counted from `start`."""
    log_std: slice | None
    """Free log-standard deviations, counted from `start`."""


LARGE_PRODUCT = 1 << 20
"""From this many scalar multiplications of one product, arithmetic dominates a step's time."""

Inputs = tuple[Floats, ...]
"""Inputs of each layer in a forward pass: [N, O], then L x [N, out]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneMlp:
    """The parameters of one network, or their gradients."""

    hidden: tuple[DenseArrays, ...]
    head: DenseArrays

    def is_small(self, num_samples: int) -> bool:
        """Whether all products of so many samples are small."""
        largest = max(layer.weight.size for layer in (*self.hidden, self.head))
        return num_samples * largest < LARGE_PRODUCT

    @classmethod
    def within(cls, flat: Floats, places: MlpPlaces) -> Self:
        """Look at a network's parameters, or at their gradients, in `flat` # [P]."""
        *hidden, head = (
            DenseArrays(weight=_view(flat, weight), bias=_view(flat, bias)[np.newaxis])
            for weight, bias in zip(places.weights, places.biases, strict=True)
        )
        return cls(hidden=tuple(hidden), head=head)

    def forward(self, observation: Floats) -> tuple[Inputs, Floats]:
        """Run `observation` # [N, O] through it; return its layers' inputs, and [N, out]."""
        inputs = hidden_forward(self.hidden, observation)
        return inputs, head_forward(self.head, inputs[-1])

    def backward(self, inputs: Inputs, delta: Floats, *, gradients: "OneMlp") -> None:
        """Write the parameters' gradients of an objective into `gradients`.

        Args:
            inputs: Of the forward pass; all but the observation are used up.
            delta: Derivative of the objective by the network's output. # [N, out]
            gradients: Written to; of the same shapes.
        """
        if not self.is_small(len(delta)) and (moving := _few_moving(delta)) is not None:
            inputs, delta = tuple(x[moving] for x in inputs), delta[moving]
        upstream = np.empty_like(inputs[-1])
        head_backward(self.head, inputs[-1], delta, gradients.head, upstream)
        hidden_backward(self.hidden, inputs, upstream, gradients.hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfParts:
    """A half's parameters, or their gradients."""

    mlp: OneMlp
    log_std: Floats | None  # [A]

    @classmethod
    def of(cls, flat: Floats, half: NetworkHalf) -> Self:
        """Look at the half in its own `flat` parameters # [P]."""
        log_std = None if half.log_std is None else flat[half.log_std]
        return cls(mlp=OneMlp.within(flat, half.mlp), log_std=log_std)

    @classmethod
    def both(cls, flat: Floats, halves: "Halves") -> tuple[Self, Self]:
        """Look at both halves in all parameters # [P]."""
        policy, value = (cls.of(flat[half.start : half.end], half) for half in halves)
        return policy, value


Halves = tuple[NetworkHalf, NetworkHalf]
"""Where policy and value function lie."""
Parts = tuple[HalfParts, HalfParts]


def differentiate(observation: Floats, loss: SplitLoss[Floats], at: Parts, *, into: Parts) -> None:
    """Write the gradient of a loss by both networks' parameters, the policy's first."""
    (policy, value), (policy_into, value_into) = at, into
    inputs, raw = policy.mlp.forward(observation)
    d_outputs = loss.policy_gradient(policy_outputs(raw, policy.log_std))
    delta = policy_delta(d_outputs, policy_into.log_std)
    policy.mlp.backward(inputs, delta, gradients=policy_into.mlp)
    inputs, values = value.mlp.forward(observation)
    d_value = loss.value_gradient(values[:, 0])[:, np.newaxis]
    value.mlp.backward(inputs, d_value, gradients=value_into.mlp)


def hidden_forward(layers: Sequence[DenseArrays], observation: Floats) -> Inputs:
    """Return each layer's input."""
    inputs = [observation]
    for layer in layers:
        x = np.matmul(inputs[-1], layer.weight.T)
        x += layer.bias
        inputs.append(np.tanh(x, out=x))
    return tuple(inputs)


def head_forward(head: DenseArrays, h: Floats) -> Floats:
    """Return the last layer's answers # [N, out]."""
    # Outputs are few and samples many: with the samples in a row, what follows is sooner done.
    output: Floats = np.matmul(head.weight, h.T)
    output += head.bias.T
    return output.T


def head_backward(
    head: DenseArrays, h: Floats, delta: Floats, gradient: DenseArrays, upstream: Floats
) -> None:
    """Write a head's gradient, and the derivative by `h` # [N, in] into `upstream`."""
    np.matmul(delta.T, h, out=gradient.weight)
    np.matmul(_ones(len(h)), delta, out=gradient.bias)
    # With one output this is an outer product, for which `matmul` takes five times as long.
    multiply = np.dot if delta.shape[1] == 1 else np.matmul
    multiply(delta, head.weight, out=upstream)


def hidden_backward(
    layers: Sequence[DenseArrays],
    inputs: Inputs,
    upstream: Floats,
    gradients: Sequence[DenseArrays],
) -> None:
    """Write the hidden layers' gradients; `upstream`, the derivative behind them, is used up.

    So are the layers' answers in `inputs`: fresh memory would push the parameters out of the cache.
    """
    ones = _ones(len(inputs[0]))
    for index in range(len(layers) - 1, -1, -1):
        derivative, gradient = inputs[index + 1], gradients[index]
        np.multiply(derivative, derivative, out=derivative)
        upstream *= np.subtract(1.0, derivative, out=derivative)
        np.matmul(upstream.T, inputs[index], out=gradient.weight)
        np.matmul(ones, upstream, out=gradient.bias)
        if index:
            upstream = np.matmul(upstream, layers[index].weight)


def _few_moving(delta: Floats) -> NDArray[np.intp] | None:
    """Return which samples have a derivative # [N, out] that is not 0; None if most have.

    Clips leave some samples none: most of them to RLlib's bounded value error, where returns are
    far larger than its bound.
    """
    # A look at one output, which is cheap, and mostly says enough.
    if 2 * np.count_nonzero(delta[:, 0]) > len(delta):
        return None
    moving = np.flatnonzero(delta.any(axis=1))
    return moving if 2 * len(moving) <= len(delta) else None


def policy_outputs(raw: Floats, log_std: Floats | None) -> Floats:
    """Return the distribution's parameters # [N, D], given the last layer's answers # [N, out].

    Free log-standard deviations # [A], if there are any, follow `raw` in them.
    """
    if log_std is None:
        return raw
    width = raw.shape[1]
    outputs = np.empty((2 * width, len(raw)), raw.dtype).T  # as the head's answers lie
    outputs[:, :width] = raw
    outputs[:, width:] = log_std
    return outputs


def policy_delta(gradient: Floats, log_std_gradient: Floats | None) -> Floats:
    """Return a loss's derivative by the last layer's answers, given that by parameters # [N, D].

    `log_std_gradient` # [A], if there is one, is overwritten with that by the free deviations.
    """
    if log_std_gradient is None:
        return gradient
    width = len(log_std_gradient)
    np.sum(gradient[:, width:], axis=0, out=log_std_gradient)
    return gradient[:, :width]


def _view(flat: Floats, place: tuple[int, tuple[int, ...]]) -> Floats:
    start, shape = place
    view: Floats = flat[start : start + math.prod(shape)].reshape(shape)
    return view


@lru_cache(maxsize=8)
def _ones(size: int) -> Floats:
    """Return what sums over samples in a matrix product # [1, N]: sooner than `np.sum`."""
    return np.ones((1, size), np.float32)
