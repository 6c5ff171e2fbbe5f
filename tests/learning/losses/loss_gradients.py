"""Asking a rule's loss over a minibatch for everything it knows."""

from typing import NamedTuple

import torch
from torch import Tensor

from learning.arrays import Floats
from learning.losses.loss_terms import LossRule, MinibatchLoss, stat_names
from learning.networks.distributions import Distribution, Gaussian
from shared.trajectory.columns import Columns


class LossGradient(NamedTuple):
    """Derivatives of the loss, and the means of its terms."""

    outputs: Tensor  # [n, D]
    value: Tensor  # [n]
    stats: dict[str, float]


def loss_gradient(
    rule: LossRule,
    outputs: Tensor,
    value: Tensor,
    minibatch: Columns[Tensor],
    distribution: Distribution,
    *,
    as_arrays: bool = False,
) -> LossGradient:
    """Ask for both gradients and the stats, of tensors or of the same numbers as arrays."""
    if as_arrays:
        assert isinstance(distribution, Gaussian)
        arrays: MinibatchLoss[Floats] = MinibatchLoss(
            rule,
            minibatch.mapped(Tensor.numpy),
            distribution,
        )
        gradients = arrays.policy_gradient(outputs.numpy()), arrays.value_gradient(value.numpy())
        d_outputs, d_value, stats = map(torch.from_numpy, (*gradients, arrays.stats()))
    else:
        loss: MinibatchLoss[Tensor] = MinibatchLoss(rule, minibatch, distribution)
        d_outputs, d_value = loss.policy_gradient(outputs), loss.value_gradient(value)
        stats = loss.stats()
    named = dict(zip(stat_names(rule), stats.tolist(), strict=True))
    return LossGradient(d_outputs, d_value, named)
