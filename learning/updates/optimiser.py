"""Adam over a network's flat parameters; it skips non-finite gradients and clips long ones."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from learning.arrays import Floats
from learning.updates.gradient import Gradient

_BETA2 = 0.999
"""Decay of the moments: the usual values."""

TotalSquare = Callable[[float], float]
"""Takes the square of our gradient's length, or NaN, and returns that of the whole gradient's, the
same for whoever steps a part of it."""

_ALL = (slice(None),)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamRule:
    """Settings of a step."""

    learning_rate: float
    epsilon: float
    """Added to the root of the second moment."""
    gradient_norm_max: float
    """Norm to which longer gradients are clipped; 0 clips none."""
    beta1: float = 0.9
    """Decay of the first moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamPart:
    """A range of parameters and their moments, as values that another process can continue from."""

    flats: tuple[Floats, ...]  # parameters, first and second moments, [P] each
    steps: int
    """Taken so far."""
    rule: AdamRule


class FlatAdam:
    """Steps all parameters of one network in one fused operation.

    A step whose loss or gradient is not finite is skipped; it changes neither parameters nor
    moments.
    """

    def __init__(
        self,
        parameters: Tensor,
        *,
        rule: AdamRule,
        pieces: Sequence[slice] = _ALL,
    ) -> None:
        """Start without moments.

        Args:
            parameters: Stepped in place. # [P]
            rule: Of the first steps.
            pieces: All parameters. The squares of each piece are summed apart, so that pieces can
                be stepped elsewhere (see `part`) to the same bits.
        """
        self._parameters = parameters
        self._rule = rule
        self._moments = {
            "step": torch.zeros((), device=parameters.device),
            "exp_avg": torch.zeros_like(parameters),
            "exp_avg_sq": torch.zeros_like(parameters),
        }
        self._pieces = tuple(pieces)

    @classmethod
    def of(cls, part: AdamPart) -> Self:
        """Return one that continues from a part, on the CPU and without changing its arrays."""
        adam = cls(torch.from_numpy(part.flats[0]).clone(), rule=part.rule)
        for own, given in zip(adam._flats()[1:], part.flats[1:], strict=True):
            own.copy_(torch.from_numpy(given))
        adam.steps = part.steps
        return adam

    @property
    def parameters(self) -> Tensor:
        """The parameters # [P]."""
        return self._parameters

    def part(self, start: int = 0, end: int | None = None) -> AdamPart:
        """Return a copy of the parameters from `start` to `end`, and of their moments."""
        flats = tuple(flat[start:end].numpy(force=True).copy() for flat in self._flats())
        return AdamPart(flats=flats, steps=self.steps, rule=self._rule)

    def take_over(self, *parts: AdamPart) -> None:
        """Continue from parts that were stepped elsewhere; together they are all parameters."""
        columns = zip(*(part.flats for part in parts), strict=True)
        for flat, pieces in zip(self._flats(), columns, strict=True):
            flat.copy_(torch.from_numpy(np.concatenate(pieces)))
        self.steps = parts[0].steps

    def _flats(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._parameters, self._moments["exp_avg"], self._moments["exp_avg_sq"]

    @property
    def flats(self) -> dict[str, Tensor]:
        """The moments, in the layout of the network's parameters: # [P] each."""
        return {f"adam_{name}": self._moments[name] for name in ("exp_avg", "exp_avg_sq")}

    def step_sizes(self) -> Tensor | None:
        """Return 1 / (sqrt(v) + epsilon), v without bias # [P]; None before the first step."""
        if not self.steps:
            return None
        unbiased = self._moments["exp_avg_sq"] / (1.0 - _BETA2**self.steps)
        return unbiased.sqrt_().add_(self._rule.epsilon).reciprocal_()

    @property
    def steps(self) -> int:
        """Steps taken so far."""
        return int(self._moments["step"].item())

    @steps.setter
    def steps(self, steps: int) -> None:
        self._moments["step"].fill_(steps)

    @property
    def learning_rate(self) -> float:
        """The step size of the coming steps."""
        return self._rule.learning_rate

    def set_learning_rate(self, learning_rate: float) -> None:
        """Take the coming steps with another step size."""
        self._rule = replace(self._rule, learning_rate=learning_rate)

    def apply(self, gradient: Gradient, whole: TotalSquare | None = None) -> list[float] | None:
        """Take one step along a gradient, on the CPU.

        Args:
            gradient: A number of its stats that is not finite leaves the step out.
            whole: Where the rest of the parameters is stepped elsewhere.

        Returns:
            The stats and the whole gradient's norm before it was cut, or None without a step.
        """
        values: list[float] = gradient.stats.tolist()
        flat: Floats = gradient.flat.numpy()
        square = self._squared_length(flat) if math.isfinite(sum(values)) else math.nan
        square = square if whole is None else whole(square)
        if not math.isfinite(square):
            return None
        length, limit = math.sqrt(square), self._rule.gradient_norm_max
        if 0.0 < limit < length:
            flat = flat * (limit / length)
        self._moments["step"].numpy()[...] += 1.0
        self._take_step(torch.from_numpy(flat))
        return [*values, length]

    def apply_unwatched(self, gradient: Gradient) -> Tensor:
        """Do the same as `apply`, without a wait and without the result on the host.

        Returns:
            The stats, the gradient's norm before it was cut, and 1; all 0 if the step was left
            out. # [S + 2] float64
        """
        flat, stats = gradient.flat, torch.as_tensor(gradient.stats)
        norm = torch.linalg.vector_norm(flat)
        row = torch.cat((stats.double(), norm.double().unsqueeze(0), stats.new_ones(1).double()))
        finite = torch.isfinite(row.sum())
        if self._rule.gradient_norm_max > 0.0:
            flat = flat * (self._rule.gradient_norm_max / norm).clamp_(max=1.0)
        left_out = finite.logical_not().float()
        self._moments["step"].add_(1.0)
        self._take_step(flat, left_out)
        self._moments["step"].sub_(left_out)
        return torch.where(finite, row, 0.0)

    def _squared_length(self, gradient: Floats) -> float:
        """Return the square of a gradient's length."""
        square = 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            for piece in self._pieces:
                # Not `sum`: since Python 3.12 it compensates rounding, which is lost if pieces are
                # stepped elsewhere.
                square += float(np.dot(gradient[piece], gradient[piece]))
        return square

    def _take_step(self, gradient: Tensor, left_out: Tensor | None = None) -> None:
        # The kernel behind `torch.optim.Adam`: its Python overhead takes as long as all other work
        # of a small network's step.
        torch._fused_adam_(
            [self._parameters],
            [gradient],
            [self._moments["exp_avg"]],
            [self._moments["exp_avg_sq"]],
            [],
            [self._moments["step"]],
            lr=self._rule.learning_rate,
            beta1=self._rule.beta1,
            beta2=_BETA2,
            weight_decay=0.0,
            eps=self._rule.epsilon,
            amsgrad=False,
            maximize=False,
            grad_scale=None,
            found_inf=left_out,
        )
