"""The gradient noise scale's two estimates, from gradients of single trajectories and of all.

McCandlish et al., "An empirical model of large-batch training", arXiv 1812.06162, appendix A.1:
with the gradient G_b of a batch of b samples, E|G_b|^2 = |G|^2 + S / b. The small batches are the
round's trajectories, the big one all of them together, so

    |G|^2 = (B |G_B|^2 - b |G_b|^2) / (B - b),    S = (|G_b|^2 - |G_B|^2) / (1/b - 1/B),

|G_b|^2 being its mean over the trajectories. KungFu (Mai et al., OSDI 2020) averages both over time
before it divides, which the scaling policy does.
"""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from learning.detectors.sample_choice import evenly_spread
from learning.detectors.surrogate import leaves, surrogate
from learning.networks.actor_critic import ActorCritic
from shared.contracts.rounds import GradientNoise
from shared.trajectory.columns import Columns

NOISE_TRAJECTORIES = 16
"""Most trajectories whose gradients are compared."""
NOISE_STEPS = 32
"""Most steps of each of them."""


def trajectory_noise(
    network: ActorCritic, batch: Columns[Tensor], *, num_trajectories: int | None = None
) -> GradientNoise | None:
    """Return the noise of the surrogate's gradient at the present policy.

    At most `NOISE_TRAJECTORIES` trajectories are compared, each by the same number of its steps.
    Steps of a trajectory are correlated, so the estimated variance depends on their number. This
    number must not change with the number of actors, nor with the detector's samples.

    Args:
        network: The policy.
        batch: The round's samples.
        num_trajectories: Most to compare; None for the maximum.
    """
    length = batch.num_samples // batch.num_trajectories
    wanted = min(NOISE_TRAJECTORIES, num_trajectories or NOISE_TRAJECTORIES)
    starts = length * evenly_spread(batch.num_trajectories, wanted)
    steps = evenly_spread(length, NOISE_STEPS)
    gradients = _gradients(network, batch, [start + steps for start in starts])
    return gradient_noise(gradients, batch_size=len(steps))


def gradient_noise(gradients: Iterator[Tensor], *, batch_size: int) -> GradientNoise | None:
    """Return both estimates, each unbiased when samples are independent; either can be negative.

    Args:
        gradients: G_b of each trajectory # [P].
        batch_size: b, of each of them.

    Returns:
        None with fewer than two trajectories, or when a gradient is not finite.
    """
    squared_norms, total = [], torch.zeros(())
    for gradient in gradients:
        squared_norms.append(gradient.square().sum())
        total = gradient if len(squared_norms) == 1 else total + gradient
    count = len(squared_norms)
    if count < 2:
        return None
    small = float(torch.stack(squared_norms).double().mean())
    big = float((total / count).square().sum())
    return noise_of_norms(small, big, count=count, batch_size=batch_size)


def noise_of_norms(
    small: float, big: float, *, count: int, batch_size: int = 1
) -> GradientNoise | None:
    """Return both estimates from squared norms alone.

    Args:
        small: |G_b|^2, the mean over the small batches.
        big: |G_B|^2, of their mean.
        count: Number of small batches.
        batch_size: b, of each of them.

    Returns:
        None with fewer than two batches, or when a number is not finite.
    """
    if count < 2:
        return None
    num_samples = count * batch_size
    variance = (small - big) / ((count - 1) / num_samples)
    squared_norm = big - variance / num_samples
    if not (math.isfinite(squared_norm) and math.isfinite(variance)):
        return None
    return GradientNoise(squared_norm=squared_norm, variance=variance)


def _gradients(
    network: ActorCritic, batch: Columns[Tensor], indices: Sequence[Tensor]
) -> Iterator[Tensor]:
    """Yield the surrogate's gradient # [P] over each choice of samples."""
    parameters = leaves(network, policy_only=True)
    for some in indices:
        chosen = some.to(batch.observation.device)
        with torch.enable_grad():
            value = surrogate(
                network,
                parameters,
                observation=batch.observation[chosen],
                action=batch.action[chosen],
                advantage=batch.advantage[chosen],
            )
            parts = torch.autograd.grad(value, tuple(parameters.values()), materialize_grads=True)
        yield torch.cat([part.reshape(-1) for part in parts])
