"""Weights of gradients by staleness, and the weighted mean.

    paper: w = 1 if s <= 1 else s^(-1/v)           s the gradient's staleness
    code:  w = t^(-1/v), and 1 where that is below d    t the number of steps so far, from 1

The code's `LambdaLR` counts its own steps in place of the staleness. With its v = 3 and d = 0.9
every weight is 1. Stellaris (SC 2024); `torch_policy_v2.py:1318` of its demonstration.

Legend: P parameters.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from learning.arrays import Floats
from shared.contracts.learner_functions import Form, StepSize


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A function's gradient."""

    call: int
    """The call of the update that it answers."""
    base: int
    """Version of the weights it was computed at."""
    flat: Floats  # [P]
    stats: Floats  # [S]
    num_samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighingRule:
    """Which weights there are."""

    form: Form
    v: float
    decay: float

    def weight(self, staleness: int, *, step: int) -> float:
        """Return a gradient's weight, in (0, 1]; `step` numbers the coming step, from 1."""
        if self.form == "off":
            return 1.0
        if self.form == "paper":
            return 1.0 if staleness <= 1 else float(staleness ** (-1.0 / self.v))
        factor = float(max(1, step) ** (-1.0 / self.v))
        return 1.0 if factor < self.decay else factor


def step_factor(form: StepSize, *, minibatches: float) -> float:
    """Return the factor of Adam's step size for a step over the samples of several minibatches.

    Linear: Goyal et al. (2017); by the root, for Adam: Malladi et al. (2022).
    """
    return {"fixed": 1.0, "sqrt": math.sqrt(minibatches), "linear": minibatches}[form]


def weighted_mean(gradients: Sequence[Arrived], weights: Sequence[float]) -> tuple[Floats, Floats]:
    """Return sum(n w g) / sum(n) # [P], and the mean of the stats by samples # [S].

    A single gradient of weight 1 is returned bit for bit.
    """
    total = sum(gradient.num_samples for gradient in gradients)
    shares = [gradient.num_samples / total for gradient in gradients]
    flat = _sum([g.flat for g in gradients], [s * w for s, w in zip(shares, weights, strict=True)])
    return flat, _sum([g.stats for g in gradients], shares)


def _sum(arrays: Sequence[Floats], factors: Sequence[float]) -> Floats:
    total: Floats = arrays[0] * factors[0]
    for array, factor in zip(arrays[1:], factors[1:], strict=True):
        total += array * factor
    return total
