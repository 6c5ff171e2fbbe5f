"""The gradient noise scale's two estimates, from gradients of single trajectories and of all.

McCandlish et al., "An empirical model of large-batch training", arXiv 1812.06162, appendix A.1:
with the gradient G_b of a batch of b samples, E|G_b|^2 = |G|^2 + S / b. The small batches are the
round's trajectories, the big one all of them together, so

    |G|^2 = (B |G_B|^2 - b |G_b|^2) / (B - b),    S = (|G_b|^2 - |G_B|^2) / (1/b - 1/B),

|G_b|^2 being its mean over the trajectories. KungFu (Mai et al., OSDI 2020) averages both over time
before it divides, which is the scaling policy's business.

A dense layer's gradient is a sum of outer products delta_i h_i^T, so no sample's gradient is formed
by itself.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from shared.contracts import GradientNoise


class Shares(NamedTuple):
    """What each of some trajectories, of equal length, has in a mean gradient."""

    squared_norms: Tensor
    """Squared length of each one's summand. # [M]"""
    gradient: Tensor
    """The sum. # [P]"""

    def and_others(self, others: "Shares") -> "Shares":
        """Return those of further trajectories with these."""
        return Shares(
            torch.cat((self.squared_norms, others.squared_norms)), self.gradient + others.gradient
        )


def squared_norms(
    inputs: Sequence[Tensor],
    deltas: Sequence[Tensor],
    free_scores: Tensor | None = None,
    *,
    num_trajectories: int,
) -> Tensor:
    """Return the squared length of each trajectory's summand of a gradient # [M].

    Args:
        inputs: Each dense layer's input, trajectory after trajectory. # L x [N, in]
        deltas: Derivative of each sample's objective by each layer's pre-activation. # L x [N, out]
        free_scores: Its derivative by parameters that no layer holds. # [N, K]
        num_trajectories: M, of equal length.
    """

    def split(samples: Tensor) -> Tensor:
        return samples.reshape(num_trajectories, -1, samples.shape[1])  # [M, n, ...]

    found = deltas[0].new_zeros(num_trajectories)
    for h, delta in zip(inputs, deltas, strict=True):
        found += _outer_sums(split(delta), split(h))
    # Biases, and what no layer holds, take the deltas' sums themselves.
    for summands in (*deltas, *(() if free_scores is None else (free_scores,))):
        found += split(summands).sum(1).square().sum(1)
    return found


def _outer_sums(rows: Tensor, columns: Tensor) -> Tensor:
    """Return the squared lengths of sums of outer products, |sum_i r_i c_i^T|^2 # [M].

    Args:
        rows: r. # [M, n, out]
        columns: c. # [M, n, in]
    """
    _, count, out = rows.shape
    width = columns.shape[2]
    if count * (out + width) < out * width:
        # The same is sum_ij (r_i . r_j) (c_i . c_j): far fewer numbers where a layer is wide.
        products = torch.bmm(rows, rows.transpose(1, 2))
        products *= torch.bmm(columns, columns.transpose(1, 2))
        return products.sum((1, 2))
    return torch.bmm(rows.transpose(1, 2), columns).flatten(1).square().sum(1)


def gradient_noise(shares: Shares, *, num_samples: int) -> GradientNoise | None:
    """Return both estimates, each unbiased when samples are independent; either can be negative.

    Args:
        shares: Of the trajectories, in the mean gradient G_B.
        num_samples: B, the same number of each trajectory.

    Returns:
        None with fewer than two trajectories, or when a gradient is not finite.
    """
    count = len(shares.squared_norms)
    if count < 2:
        return None
    # A trajectory's own mean gradient is its summand, times the number of them.
    small = count**2 * float(shares.squared_norms.double().mean())
    big = float(shares.gradient.square().sum())
    variance = (small - big) / ((count - 1) / num_samples)
    squared_norm = big - variance / num_samples
    if not (math.isfinite(squared_norm) and math.isfinite(variance)):
        return None
    return GradientNoise(squared_norm=squared_norm, variance=variance)
