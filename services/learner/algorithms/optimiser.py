"""Adam over a network's flat parameters, with gradients it refuses and gradients it shortens."""

import math

import torch
from torch import Tensor
from torch.optim.adam import adam

from services.learner.networks import ActorCritic

_BETA1, _BETA2 = 0.9, 0.999
"""Decay of the moments, as everybody has them."""


class FlatAdam:
    """Steps all parameters of one network in one fused operation.

    A step whose loss or gradient is not finite is left out; it changes neither parameters nor
    moments.
    """

    def __init__(
        self,
        network: ActorCritic,
        *,
        learning_rate: float,
        epsilon: float,
        gradient_norm_max: float,
    ) -> None:
        """Start without moments.

        Args:
            network: Its `flat` parameters are stepped in place.
            learning_rate: Of the first steps.
            epsilon: Added to the root of the second moment.
            gradient_norm_max: Longer gradients are cut to this length; 0 cuts none.
        """
        parameters = network.flat
        self.gradient = network.new_gradient()
        """Where `step` looks for the gradient: the network's way back writes it here."""
        self._parameters = parameters
        self._norm_max = gradient_norm_max
        self._learning_rate = learning_rate
        self._epsilon = epsilon
        self._moments = {
            "step": torch.zeros((), device=parameters.device),
            "exp_avg": torch.zeros_like(parameters),
            "exp_avg_sq": torch.zeros_like(parameters),
        }

    @property
    def flats(self) -> dict[str, Tensor]:
        """The moments, in the layout of the network's parameters: # [P] each."""
        return {f"adam_{name}": self._moments[name] for name in ("exp_avg", "exp_avg_sq")}

    @property
    def steps(self) -> int:
        """Steps taken so far."""
        return int(self._moments["step"].item())

    @steps.setter
    def steps(self, steps: int) -> None:
        self._moments["step"].fill_(steps)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Take the coming steps with another step size."""
        self._learning_rate = learning_rate

    def step(self, stats: Tensor) -> list[float] | None:
        """Take one step along `gradient`.

        Args:
            stats: Of the loss; a number in them that is not finite leaves the step out. # [S]

        Returns:
            The stats and the gradient's norm before it was cut, or None without a step.
        """
        norm = torch.linalg.vector_norm(self.gradient.flat)
        *values, length = torch.cat((stats, norm.unsqueeze(0))).tolist()
        if not math.isfinite(sum(values) + length):
            return None
        if 0.0 < self._norm_max < length:
            self.gradient.flat.mul_(self._norm_max / length)
        self._take_step()
        return [*values, length]

    def step_unwatched(self, stats: Tensor) -> Tensor:
        """Do as `step` does without the host knowing what came of it, and without a wait.

        Returns:
            The stats, the gradient's norm before it was cut, and 1; all 0 if the step was left
            out. # [S + 2] float64
        """
        norm = torch.linalg.vector_norm(self.gradient.flat)
        row = torch.cat((stats.double(), norm.double().unsqueeze(0), stats.new_ones(1).double()))
        finite = torch.isfinite(row.sum())
        if self._norm_max > 0.0:
            scale = (self._norm_max / norm).clamp_(max=1.0)
            # Not by a NaN: the gaps between parameters are never written to again.
            self.gradient.flat.mul_(torch.where(finite, scale, 1.0))
        self._take_step(left_out=finite.logical_not().float())
        return torch.where(finite, row, 0.0)

    def _take_step(self, left_out: Tensor | None = None) -> None:
        # The function behind `torch.optim.Adam`: the class takes longer than the arithmetic.
        adam(
            [self._parameters],
            [self.gradient.flat],
            [self._moments["exp_avg"]],
            [self._moments["exp_avg_sq"]],
            [],
            [self._moments["step"]],
            fused=True,
            found_inf=left_out,
            amsgrad=False,
            beta1=_BETA1,
            beta2=_BETA2,
            lr=self._learning_rate,
            weight_decay=0.0,
            eps=self._epsilon,
            maximize=False,
        )
