"""Action distributions over the outputs of a policy network.

The noise of a whole fragment is drawn at once and the log-probabilities of a whole fragment are
computed at once; what is left for every step is a handful of in-place operations.

Legend: `...` any leading axes, `B` rows, `A` action size, `H` network outputs.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Action = NDArray[np.float32] | NDArray[np.int64]

MAX_CHOICES = 256
"""Most choices that an action may consist of."""

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Distribution(Protocol):
    """How network outputs become actions."""

    @property
    def num_outputs(self) -> int:
        """Network outputs it needs, H."""

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one action."""

    @property
    def num_choices(self) -> int | tuple[int, ...] | None:
        """How many discrete actions there are, of each choice if several; None: continuous."""

    def new_actions(self, shape: tuple[int, ...]) -> Action:
        """Return zeros [*shape, *action_shape] of the type of actions."""

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Float32:
        """Draw what `sample` turns into actions, [*shape, noise]."""

    def sample(self, outputs: Float32, *, noise: Float32, out: Action) -> None:
        """Write actions [B, *action_shape] for outputs [B, H] and noise [B, noise]."""

    def mode(self, outputs: Float32) -> Action:
        """Return the most likely actions [..., *action_shape] for outputs [..., H]."""

    def log_prob(self, outputs: Float32, action: Action) -> Float32:
        """Return the log-probabilities (densities) [...] of actions [..., *action_shape]."""


class Gaussian:
    """Independent normal distributions, not squashed: values beyond the bounds are kept.

    Without `log_std` the outputs are `mean | log_std` (H = 2A, RLlib's form); with it they are the
    mean (H = A) and the deviation does not depend on the state (the form of PPO's first paper).
    """

    def __init__(self, action_size: int, *, log_std: Float32 | None) -> None:
        self._size = action_size
        self._log_std = log_std

    @property
    def num_outputs(self) -> int:
        """Network outputs it needs, H."""
        return 2 * self._size if self._log_std is None else self._size

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one action."""
        return (self._size,)

    @property
    def num_choices(self) -> None:
        """How many discrete actions there are."""
        return None

    def new_actions(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return zeros [*shape, *action_shape]."""
        return np.zeros((*shape, self._size), np.float32)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Float32:
        """Draw normal noise, times the deviation where that is constant."""
        noise = rng.standard_normal((*shape, self._size), dtype=np.float32)
        return noise if self._log_std is None else noise * np.exp(self._log_std)

    def sample(self, outputs: Float32, *, noise: Float32, out: Action) -> None:
        """Write one action per row into `out`."""
        if self._log_std is not None:
            np.add(outputs, noise, out=out)
            return
        np.exp(outputs[:, self._size :], out=out)
        np.multiply(out, noise, out=out)
        np.add(out, outputs[:, : self._size], out=out)

    def mode(self, outputs: Float32) -> NDArray[np.float32]:
        """Return the most likely actions."""
        return outputs[..., : self._size].copy()

    def log_prob(self, outputs: Float32, action: Action) -> Float32:
        """Return log-densities, computed in float64: the terms are large beside their sum."""
        mean = outputs[..., : self._size].astype(np.float64)
        log_std = outputs[..., self._size :] if self._log_std is None else self._log_std
        log_std = log_std.astype(np.float64)
        z = (action - mean) * np.exp(-log_std)
        log_prob: NDArray[np.float64] = (-0.5 * z * z - log_std - _HALF_LOG_2PI).sum(axis=-1)
        return log_prob.astype(np.float32)


class MultiCategorical:
    """Several independent choices, each by its logits; the outputs are all logits side by side.

    H is the sum of the numbers of choices; log-probabilities add up.
    """

    def __init__(self, num_choices: Sequence[int]) -> None:
        self._parts = tuple(Categorical(n) for n in num_choices)
        ends = np.cumsum(num_choices).tolist()
        self._slices = tuple(
            slice(end - n, end) for n, end in zip(num_choices, ends, strict=True)
        )  # of each choice's logits among the outputs

    @property
    def num_outputs(self) -> int:
        """Network outputs it needs, H."""
        return sum(self.num_choices)

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one action."""
        return (len(self._parts),)

    @property
    def num_choices(self) -> tuple[int, ...]:
        """How many discrete actions there are."""
        return tuple(part.num_choices for part in self._parts)

    def new_actions(self, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Return zeros [*shape, *action_shape]."""
        return np.zeros((*shape, len(self._parts)), np.int64)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Float32:
        """Draw what `sample` turns into actions, [*shape, noise]."""
        return rng.gumbel(size=(*shape, self.num_outputs)).astype(np.float32)

    def sample(self, outputs: Float32, *, noise: Float32, out: Action) -> None:
        """Write one action per row into `out`."""
        perturbed = outputs + noise
        for i, logits in enumerate(self._slices):
            out[..., i] = perturbed[..., logits].argmax(axis=-1)

    def mode(self, outputs: Float32) -> NDArray[np.int64]:
        """Return the most likely actions."""
        chosen = [
            part.mode(outputs[..., logits])
            for part, logits in zip(self._parts, self._slices, strict=True)
        ]
        return np.stack(chosen, axis=-1)

    def log_prob(self, outputs: Float32, action: Action) -> Float32:
        """Return the log-probabilities of the actions."""
        log_prob = np.zeros(outputs.shape[:-1], np.float32)
        for i, (part, logits) in enumerate(zip(self._parts, self._slices, strict=True)):
            log_prob += part.log_prob(outputs[..., logits], action[..., i])
        return log_prob


class Categorical:
    """One of n actions by its logit; the outputs are the logits (H = n)."""

    def __init__(self, num_actions: int) -> None:
        self._num_actions = num_actions

    @property
    def num_outputs(self) -> int:
        """Network outputs it needs, H."""
        return self._num_actions

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one action."""
        return ()

    @property
    def num_choices(self) -> int:
        """How many discrete actions there are."""
        return self._num_actions

    def new_actions(self, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Return zeros [*shape, *action_shape]."""
        return np.zeros(shape, np.int64)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Float32:
        """Draw Gumbel noise: the largest of logit plus Gumbel is a sample."""
        return rng.gumbel(size=(*shape, self._num_actions)).astype(np.float32)

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
