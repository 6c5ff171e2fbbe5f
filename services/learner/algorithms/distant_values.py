"""Values that need not be computed, because they are too far from where they would matter.

RLlib's value error is bounded: a sample whose value is further from its target than the bound has
no slope, and the same part in the loss however far it is. While a network has few steps behind it,
how far its values can have moved since they were last computed is bounded by how far its parameters
have moved. Samples out of reach of that bound are left out of a step, and nothing changes.

Legend: N samples of the batch; n of a minibatch; O numbers of an observation; P parameters.
"""

import math
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from services.learner.actor_critic import NetworkHalf
from services.learner.algorithms.loss_terms import LossRule, Term
from services.learner.algorithms.minibatch import bounds, num_minibatches
from services.learner.arrays import Floats
from services.learner.numpy_mlp import MlpPlaces, OneMlp

MIN_MULTIPLICATIONS = 1 << 22
"""Below this many scalar multiplications of a step, on the value function's way forward, looking at
how far the parameters have moved takes longer than what is saved."""
MOST_NEAR = 0.25
"""With a larger share of samples that may have a slope, likewise."""

_ROUNDING = 1e-3
"""Of numbers and of bounds: far more than float32 can be off by."""
_PIECE = 1 << 16
"""Numbers whose squares are summed in float32."""
_CHUNK = 4096
"""Samples that are run through the network at a time."""


def leaves_out(rule: LossRule, *, target: Floats, value: Floats, multiplications: int) -> bool:
    """Say whether looking for values that are too far away saves time in an update.

    Args:
        rule: The loss.
        target: Of the values. # [N]
        value: Before the update. # [N]
        multiplications: Of a step, on the value function's way forward.
    """
    if multiplications < MIN_MULTIPLICATIONS:
        return False
    room = rule.value_room(target, value)
    return room is not None and bool(np.count_nonzero(room > 0.0) >= (1.0 - MOST_NEAR) * len(room))


class DistantValues:
    """Differentiates the value function, with an eye on which samples can have a slope."""

    def __init__(
        self,
        half: NetworkHalf,
        rule: LossRule,
        *,
        observation: Floats,
        target: Floats,
        value: Floats,
        minibatch_size: int,
        parameters: Floats,
        gradient: Floats,
    ) -> None:
        """Look at a network that is stepped.

        Args:
            half: Where the network lies.
            rule: Whose values' term has a `value_room`.
            observation: Of all samples. # [N, O]
            target: Of their values. # [N]
            value: At the present parameters. # [N]
            minibatch_size: Most samples of a step.
            parameters: Of the value function. # [P]
            gradient: Where `passes` writes. # [P]
        """
        self._rule = rule
        self._mlp, self._gradients = (
            OneMlp.within(flat, half.mlp) for flat in (parameters, gradient)
        )
        self._drift = Drift(parameters, half.mlp)
        self._minibatch_size = minibatch_size
        self._samples = observation, np.linalg.norm(observation, axis=1), target, value
        self._target = target
        self._seen = value
        """Values as they were last computed # [N]."""
        self._room = _room(rule, self._target, self._seen)
        self._in_vain = 0
        """Samples that were run through the network since then and had no slope."""

    def passes(self, orders: Iterable[NDArray[np.int64]]) -> Iterator[Floats]:
        """Go through the samples in some orders # [N], one minibatch at a time.

        For each, its loss's gradient at the present parameters is written, and the stats yielded
        # [S].
        """
        count = num_minibatches(len(self._target), self._minibatch_size)
        for order in orders:
            if self._in_vain >= len(self._target):
                self._look_again()
            whole = [field[order] for field in (*self._samples, self._seen, self._room)]
            for start, end in bounds(len(order), count):
                yield self._differentiate(*(field[start:end] for field in whole))

    def _differentiate(
        self,
        observation: Floats,
        length: Floats,
        target: Floats,
        before: Floats,
        seen: Floats,
        room: Floats,
    ) -> Floats:
        per_length, at_least = self._drift.bound()
        # Not `room <= ...`: what is no number is looked at.
        near = np.flatnonzero(~(room > per_length * length + at_least))
        value = seen.copy()
        inputs, answers = self._mlp.forward(observation[near])
        value[near] = answers[:, 0]
        term: Term[Floats] = self._rule.value_term(target, before)
        delta = term.slope(value)[near]
        self._in_vain += len(near) - int(np.count_nonzero(delta))
        self._mlp.backward(inputs, delta[:, np.newaxis], gradients=self._gradients)
        return term.stats()

    def _look_again(self) -> None:
        """Compute all values: that takes no longer than what was in vain since the last time."""
        observation, *_ = self._samples
        chunks = range(0, len(observation), _CHUNK)
        parts = [self._mlp.forward(observation[i : i + _CHUNK])[1] for i in chunks]
        self._seen = np.concatenate(parts)[:, 0]
        self._room = _room(self._rule, self._target, self._seen)
        self._drift.mark()
        self._in_vain = 0


class Drift:
    """How far a network's outputs can have moved.

    With d the distance of a parameter from where it was, in the Frobenius norm, and s a bound of
    its spectral norm there, a layer of tanh whose inputs have moved by at most e moves by at most
    d(weight) |h| + s(weight) e + d(bias), h being its inputs: at most the root of their number
    behind a tanh.
    """

    def __init__(self, parameters: Floats, places: MlpPlaces) -> None:
        """Measure from the present parameters # [P] on, which are watched."""
        self._parameters = parameters
        self._places = places
        self._moved = np.empty_like(parameters)
        layers = OneMlp.within(self._moved, places)
        self._layers = [
            (layer.weight.reshape(-1), layer.bias.reshape(-1), math.sqrt(layer.weight.shape[1]))
            for layer in (*layers.hidden, layers.head)
        ]
        self.mark()

    def mark(self) -> None:
        """Measure from the present parameters on."""
        self._mark = self._parameters.copy()
        layers = OneMlp.within(self._mark, self._places)
        behind = (*layers.hidden[1:], layers.head)
        self._stretch = [_spectral_bound(layer.weight) for layer in behind]

    def bound(self) -> tuple[float, float]:
        """Return a and b: at an observation x, no output has moved by more than a |x| + b."""
        np.subtract(self._parameters, self._mark, out=self._moved)
        (weight, bias, _), *others = self._layers
        per_length, at_least = _length(weight), _length(bias)
        for (weight, bias, most), stretch in zip(others, self._stretch, strict=True):
            per_length *= stretch
            at_least = at_least * stretch + _length(weight) * most + _length(bias)
        return per_length * (1.0 + _ROUNDING), at_least * (1.0 + _ROUNDING)


def _room(rule: LossRule, target: Floats, value: Floats) -> Floats:
    """Return how far each value may move # [N], less what rounding can have done to it."""
    room = rule.value_room(target, value)
    assert room is not None, "a rule that has no room has no distant values"
    rounding: Floats = _ROUNDING * (1.0 + np.abs(target) + np.abs(value))
    return room - rounding


def _spectral_bound(weight: Floats) -> float:
    """Return a bound of a matrix's spectral norm.

    It is the fourth root of the sum of its singular values' fourth powers.
    """
    narrow = weight if weight.shape[0] < weight.shape[1] else weight.T
    return math.sqrt(_length((narrow @ narrow.T).reshape(-1))) * (1.0 + _ROUNDING)


def _length(x: Floats) -> float:
    if len(x) <= _PIECE:
        return math.sqrt(float(np.dot(x, x)))
    # In pieces: float32 sums of millions of squares fall short by more than `_ROUNDING`.
    pieces = (x[i : i + _PIECE] for i in range(0, len(x), _PIECE))
    return math.sqrt(math.fsum(float(np.dot(piece, piece)) for piece in pieces))
