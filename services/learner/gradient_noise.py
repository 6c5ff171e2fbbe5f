"""The gradient noise scale's two estimates, from gradients of single trajectories and of all.

McCandlish et al., "An empirical model of large-batch training", arXiv 1812.06162, appendix A.1:
with the gradient G_b of a batch of b samples, E|G_b|^2 = |G|^2 + S / b. The small batches are the
round's trajectories, the big one all of them together, so

    |G|^2 = (B |G_B|^2 - b |G_b|^2) / (B - b),    S = (|G_b|^2 - |G_B|^2) / (1/b - 1/B),

|G_b|^2 being its mean over the trajectories. KungFu (Mai et al., OSDI 2020) averages both over time
before it divides, which is the scaling policy's business.

No gradient is formed: a dense layer's gradient is a sum of outer products delta_i h_i^T, so the
inner product of two samples' gradients is (delta_i . delta_j)(h_i . h_j + 1), summed over layers,
and every norm above is a sum of such products.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from shared.contracts import GradientNoise


def gradient_products(
    inputs: Sequence[Tensor], deltas: Sequence[Tensor], free_scores: Tensor | None = None
) -> Tensor:
    """Return the inner products of all samples' gradients # [N, N].

    Args:
        inputs: Each dense layer's input. # L x [N, in]
        deltas: Derivative of each sample's objective by each layer's pre-activation. # L x [N, out]
        free_scores: Its derivative by parameters that no layer holds. # [N, K]
    """
    count = len(deltas[0])
    products = deltas[0].new_zeros(count, count)
    for h, delta in zip(inputs, deltas, strict=True):
        products += (delta @ delta.t()) * (h @ h.t() + 1.0)
    if free_scores is not None:
        products += free_scores @ free_scores.t()
    return products


def gradient_noise(products: Tensor, trajectory: Tensor) -> GradientNoise | None:
    """Return both estimates, each unbiased when samples are independent; either can be negative.

    Args:
        products: Inner products of the samples' contributions to the mean gradient, so that their
            total is |G_B|^2. # [N, N]
        trajectory: Index of the trajectory each sample is of. # [N] int64

    Returns:
        None with fewer than two trajectories, or when a gradient is not finite.
    """
    total = len(trajectory)
    sizes = torch.bincount(trajectory)
    present = sizes > 0
    if int(present.sum()) < 2:
        return None
    rows = products.new_zeros(len(sizes), total).index_add_(0, trajectory, products)
    pairs = rows.new_zeros(len(sizes), len(sizes)).index_add_(1, trajectory, rows).double()
    counts = sizes[present].double()
    small = float((pairs.diagonal()[present] * (total / counts) ** 2).mean())
    big = float(pairs.sum())
    # Trajectories may differ by a sample: what matters of a size is 1 / b.
    small_inverse, big_inverse = float((1.0 / counts).mean()), 1.0 / total
    variance = (small - big) / (small_inverse - big_inverse)
    squared_norm = big - variance * big_inverse
    if not (math.isfinite(squared_norm) and math.isfinite(variance)):
        return None
    return GradientNoise(squared_norm=squared_norm, variance=variance)
