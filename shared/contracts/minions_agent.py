"""MinionsRL's scheduler as data: its inputs, its network and its choices.

Yu et al., "Cheaper and Faster: Distributed Deep Reinforcement Learning with Serverless Computing"
(MinionsRL), AAAI 2024: a policy network that looks at a round and draws the next round's number of
actors. The scaler evaluates it in plain Python, so its weights are numbers in JSON; they are
trained by `nitro scheduler train`. Scaler and trainer share this module, so that an agent meets
the same state and the same arithmetic in training and in use.
"""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from operator import mul
from typing import Annotated, Self

from pydantic import Field, model_validator

from shared.contracts.message import Message, Number, PositiveFloat

STATE_SIZE = 8
MAX_NUMBERS = 10_000
"""Weights and biases together; the published network has 8,896 for 64 choices."""
_MAX_SCALED = 50.0
"""Clip of scaled inputs, so that an unfamiliar run stays finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerState:
    """The agent's inputs before a round; unknown values are 0."""

    round_index: float = 0.0
    learner_loss: float = 0.0
    mean_return: float = 0.0
    """Of the newest evaluation."""
    kl: float = 0.0
    learner_s: float = 0.0
    actor_s: float = 0.0
    remaining_usd: float = 0.0

    @property
    def round_s(self) -> float:
        """Seconds of the whole round."""
        return self.learner_s + self.actor_s

    @property
    def vector(self) -> tuple[float, ...]:
        """The numbers in order # [STATE_SIZE]."""
        *before, remaining_usd = astuple(self)
        return (*before, self.round_s, remaining_usd)


class DenseLayer(Message):
    """One layer: `weights @ x + biases`."""

    weights: tuple[tuple[Number, ...], ...]  # [outputs, inputs]
    biases: tuple[Number, ...]  # [outputs]

    @model_validator(mode="after")
    def _rectangular(self) -> Self:
        if not self.weights or not self.weights[0]:
            raise ValueError("weights (empty) must have at least one row and one column")
        columns = {len(row) for row in self.weights}
        if len(columns) > 1:
            raise ValueError(f"weights (rows of {sorted(columns)}) must have rows of one length")
        if len(self.biases) != len(self.weights):
            raise ValueError(
                f"biases ({len(self.biases)} numbers) must be as many as the {len(self.weights)} "
                "rows of weights"
            )
        return self

    @property
    def num_inputs(self) -> int:
        """Columns of the weights."""
        return len(self.weights[0])

    @property
    def num_outputs(self) -> int:
        """Rows of the weights."""
        return len(self.weights)


class MinionsAgent(Message):
    """The policy network of a trained scheduler: tanh between layers, a softmax over counts."""

    scales: Annotated[
        tuple[PositiveFloat, ...], Field(min_length=STATE_SIZE, max_length=STATE_SIZE)
    ] = (1.0,) * STATE_SIZE
    """Divisors of the state's numbers; the published agent has none."""
    layers: Annotated[tuple[DenseLayer, ...], Field(min_length=1, max_length=8)]
    """From the state to one logit per choice; choice i means i + 1 actors."""

    @model_validator(mode="after")
    def _chained(self) -> Self:
        inputs = STATE_SIZE
        for index, layer in enumerate(self.layers):
            if layer.num_inputs != inputs:
                raise ValueError(
                    f"layers.{index} ({layer.num_inputs} columns) must have {inputs} columns, one "
                    "for each input"
                )
            inputs = layer.num_outputs
        numbers = sum((layer.num_inputs + 1) * layer.num_outputs for layer in self.layers)
        if numbers > MAX_NUMBERS:
            raise ValueError(f"layers ({numbers} numbers) must have at most {MAX_NUMBERS} in all")
        return self

    @property
    def num_choices(self) -> int:
        """The largest number of actors it can choose."""
        return self.layers[-1].num_outputs


def choice_probabilities(agent: MinionsAgent, state: SchedulerState) -> tuple[float, ...]:
    """Return the probability of 1, 2, ... actors # [num_choices]."""
    x: Sequence[float] = [
        max(-_MAX_SCALED, min(_MAX_SCALED, value / scale))
        for value, scale in zip(state.vector, agent.scales, strict=True)
    ]
    for layer in agent.layers[:-1]:
        x = [math.tanh(value) for value in _affine(layer, x)]
    logits = _affine(agent.layers[-1], x)
    highest = max(logits)
    powers = [math.exp(logit - highest) for logit in logits]
    total = sum(powers)
    return tuple(power / total for power in powers)


def drawn_count(probabilities: Sequence[float], uniform: float) -> int:
    """Return the number of actors at a point in [0, 1) of the distribution of 1, 2, ... actors."""
    reached = 0.0
    for index, probability in enumerate(probabilities):
        reached += probability
        if uniform < reached:
            return index + 1
    return len(probabilities)  # rounding left the sum just below 1


def _affine(layer: DenseLayer, x: Sequence[float]) -> list[float]:
    return [
        sum(map(mul, row, x), start=bias)
        for row, bias in zip(layer.weights, layer.biases, strict=True)
    ]
