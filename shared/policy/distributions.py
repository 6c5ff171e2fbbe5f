"""Action distributions over the outputs of a policy network.

The noise and the log-probabilities of a whole fragment are each computed at once. A step needs only
a handful of in-place operations.

All distributions have the same attributes and methods. `num_outputs` is the number of network
outputs (H), and `action_shape` the shape of one action. `num_choices` is the number of discrete
actions, a tuple for several choices, or None. `noise` draws random numbers, which `sample` turns
into actions [B, *action_shape] for outputs [B, H]. `mode` and `log_prob` take any leading axes.

Legend: `...` any leading axes, `B` rows, `A` action size, `H` network outputs.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shared.policy.formulas import FormulaHead
from shared.policy.head import Head
from shared.policy.registry import HEADS
from shared.policy.squashed_gaussian import SquashedGaussian

Float32 = NDArray[np.float32]
Action = NDArray[np.float32] | NDArray[np.int64]

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Gaussian:
    """Independent normal distributions without squashing: values beyond the bounds are kept.

    Without `log_std` the outputs are `mean | log_std` (H = 2A, RLlib's form). With `log_std` the
    outputs are the mean (H = A), and the deviation does not depend on the state (the form of the
    PPO paper).
    """

    num_choices = None

    def __init__(self, action_size: int, *, log_std: Float32 | None) -> None:
        self.num_outputs = 2 * action_size if log_std is None else action_size
        self.action_shape = (action_size,)
        self._size = action_size
        self._log_std = log_std

    def new_actions(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return zeros [*shape, A]."""
        return np.zeros((*shape, self._size), np.float32)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Float32:
        """Draw normal noise [*shape, A], times the deviation if that is constant."""
        noise = rng.standard_normal((*shape, self._size), dtype=np.float32)
        return noise if self._log_std is None else noise * np.exp(self._log_std)

    def sample(self, outputs: Float32, *, noise: Float32, out: Action) -> None:
        """Write one action per row into `out`."""
        if self._log_std is not None:
            np.add(outputs, noise, out=out)
            return
        np.exp(outputs[..., self._size :], out=out)
        np.multiply(out, noise, out=out)
        np.add(out, outputs[..., : self._size], out=out)

    def mode(self, outputs: Float32) -> NDArray[np.float32]:
        """Return the most likely actions."""
        return outputs[..., : self._size].copy()

    def log_prob(self, outputs: Float32, action: Action) -> Float32:
        """Return log-densities, computed in float64: the terms are large relative to their sum."""
        mean = outputs[..., : self._size].astype(np.float64)
        log_std = outputs[..., self._size :] if self._log_std is None else self._log_std
        log_std = log_std.astype(np.float64)
        z = (action - mean) * np.exp(-log_std)
        log_prob: NDArray[np.float64] = (-0.5 * z * z - log_std - _HALF_LOG_2PI).sum(axis=-1)
        return log_prob.astype(np.float32)


class _Choices:
    """Common base of one and of several discrete choices: actions are integers, outputs logits."""

    def __init__(self, num_outputs: int, action_shape: tuple[int, ...]) -> None:
        self.num_outputs = num_outputs
        self.action_shape = action_shape

    def new_actions(self, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Return zeros [*shape, *action_shape]."""
        return np.zeros((*shape, *self.action_shape), np.int64)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Float32:
        """Draw Gumbel noise [*shape, H]: the argmax of logits plus Gumbel noise is a sample."""
        return rng.gumbel(size=(*shape, self.num_outputs)).astype(np.float32)


class Categorical(_Choices):
    """One of n actions; the outputs are its logits (H = n)."""

    def __init__(self, num_actions: int) -> None:
        super().__init__(num_actions, ())
        self.num_choices = num_actions

    def sample(self, outputs: Float32, *, noise: Float32, out: Action) -> None:
        """Write one action per row into `out`."""
        out[...] = (outputs + noise).argmax(axis=-1)

    def mode(self, outputs: Float32) -> NDArray[np.int64]:
        """Return the most likely actions."""
        return np.asarray(np.argmax(outputs, axis=-1), np.int64)

    def log_prob(self, outputs: Float32, action: Action) -> Float32:
        """Return a log-softmax, shifted by the largest logit so that it cannot overflow."""
        logits = outputs.astype(np.float64)
        logits -= logits.max(axis=-1, keepdims=True)
        log_normaliser = np.log(np.exp(logits).sum(axis=-1))
        index = action.astype(np.int64)[..., np.newaxis]
        chosen = np.take_along_axis(logits, index, axis=-1)[..., 0]
        return np.asarray(chosen - log_normaliser, np.float32)


class MultiCategorical(_Choices):
    """Several independent choices; the outputs are the logits of all choices, concatenated.

    H is the sum of the numbers of choices; log-probabilities add up.
    """

    def __init__(self, num_choices: Sequence[int]) -> None:
        super().__init__(sum(num_choices), (len(num_choices),))
        self.num_choices = tuple(num_choices)
        ends = np.cumsum(num_choices).tolist()
        self._parts = tuple(
            (Categorical(n), slice(end - n, end)) for n, end in zip(num_choices, ends, strict=True)
        )  # each choice, and the slice of its logits in the outputs

    def sample(self, outputs: Float32, *, noise: Float32, out: Action) -> None:
        """Write one action per row into `out`."""
        perturbed = outputs + noise
        for i, (_, logits) in enumerate(self._parts):
            out[..., i] = perturbed[..., logits].argmax(axis=-1)

    def mode(self, outputs: Float32) -> NDArray[np.int64]:
        """Return the most likely actions."""
        return np.stack([part.mode(outputs[..., logits]) for part, logits in self._parts], axis=-1)

    def log_prob(self, outputs: Float32, action: Action) -> Float32:
        """Return the log-probabilities of the actions."""
        log_prob = np.zeros(outputs.shape[:-1], np.float32)
        for i, (part, logits) in enumerate(self._parts):
            log_prob += part.log_prob(outputs[..., logits], action[..., i])
        return log_prob


class OwnDistribution:
    """A continuous distribution with formulas in its own file."""

    num_choices = None

    def __init__(self, formulas: FormulaHead, action_size: int) -> None:
        self.num_outputs = 2 * action_size
        self.action_shape = (action_size,)
        self._formulas = formulas

    def new_actions(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return zeros [*shape, A]."""
        return np.zeros((*shape, *self.action_shape), np.float32)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Float32:
        """Draw noise [*shape, A]."""
        noise: Float32 = self._formulas.noise(rng, (*shape, *self.action_shape))
        return noise

    def sample(self, outputs: Float32, *, noise: Float32, out: Action) -> None:
        """Write one action per row into `out`."""
        out[...] = self._formulas.sample(np, outputs, noise)

    def mode(self, outputs: Float32) -> NDArray[np.float32]:
        """Return the means."""
        return outputs[..., : self.action_shape[0]].copy()

    def log_prob(self, outputs: Float32, action: Action) -> Float32:
        """Return log-densities."""
        rows, actions = (
            outputs.reshape(-1, self.num_outputs),
            action.reshape(-1, *self.action_shape),
        )
        log_prob: Float32 = self._formulas.log_prob(np, rows, actions)
        return log_prob.reshape(outputs.shape[:-1]).astype(np.float32)


Distribution = Gaussian | SquashedGaussian | Categorical | MultiCategorical | OwnDistribution
"""Turns network outputs into actions."""


def distribution_of(head: Head, log_std: Float32 | None) -> Distribution:
    """Return a head's distribution; `log_std` [A] if the deviations are free parameters."""
    if head.distribution in HEADS:
        return OwnDistribution(HEADS[head.distribution], head.size)
    if head.distribution == "gaussian":
        return Gaussian(head.size, log_std=log_std)
    if head.distribution == "squashed_gaussian":
        return SquashedGaussian(head.size, uniform=head.sampling == "uniform")
    if head.distribution == "categorical":
        return Categorical(*head.num_choices)
    return MultiCategorical(head.num_choices)
