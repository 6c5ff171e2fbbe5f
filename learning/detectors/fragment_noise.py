"""Variance of gradients between fragments: the number of fragments that an update can use.

With the gradients g_i of n fragments at the policy that made them, before any step, where every
ratio is 1:

    T = sum_i |g_i - mean|^2 / (n - 1),    G2 = |mean|^2 - T / n,

unbiased estimates of the variance of one fragment's gradient and of the true gradient's squared
norm (McCandlish et al., arXiv 1812.06162, appendix A.1, with fragments as samples: steps inside one
are correlated). `T / G2` is the noise scale in fragments.

In this norm a step of Adam is a plain gradient step: `|g|^2 = sum_j p_j g_j^2` with
Adam's `p = 1 / (sqrt(v) + epsilon)`. With `x = p^(1/2) y` the step `-p dL/dx` is `-dL/dy` in y, and
`|dL/dy|^2` is this. v is known before the samples, so the estimates stay unbiased.
"""

import torch
from torch import Tensor

from learning.detectors.detector import UpdateStart
from learning.detectors.gradient_noise import NOISE_TRAJECTORIES, gradient_noise
from learning.detectors.sample_choice import evenly_spread
from learning.detectors.surrogate import Parameters, leaves, surrogate
from learning.networks.actor_critic import ActorCritic
from shared.contracts.rounds import FEWEST_FRAGMENTS, GradientNoise
from shared.trajectory.columns import Columns

_PARAMETERS_AT_ONCE = 2**20
"""Fragments of small networks are differentiated together, which is twice as fast; for large
networks it would take more memory, and no less time."""


def fragment_noise(
    network: ActorCritic, batch: Columns[Tensor], start: UpdateStart
) -> GradientNoise | None:
    """Return T and G2 of the surrogate at an update's start.

    Args:
        network: Unchanged; its present parameters do not matter.
        batch: The update's samples, of which up to `NOISE_TRAJECTORIES` fragments are compared:
            the estimates do not depend on their number.
        start: Parameters and step sizes before the update.

    Returns:
        None with fewer than `FEWEST_FRAGMENTS`, or when a gradient is not finite.
    """
    if batch.num_trajectories < FEWEST_FRAGMENTS:
        return None
    roots = leaves(network, policy_only=True, flat=start.step_sizes.sqrt())
    root = torch.cat([part.detach().reshape(-1) for part in roots.values()])
    chosen = evenly_spread(batch.num_trajectories, NOISE_TRAJECTORIES)
    few = max(1, _PARAMETERS_AT_ONCE // network.flat.numel())
    gradients = (
        root * gradient
        for indices in torch.split(chosen, few)
        for gradient in _gradients(network, batch, start, indices)
    )
    return gradient_noise(gradients, batch_size=1)


def _gradients(
    network: ActorCritic, batch: Columns[Tensor], start: UpdateStart, fragments: Tensor
) -> Tensor:
    """Return the surrogate's gradients # [F, P of the policy] over some fragments, each alone."""

    def values(parameters: Parameters, *samples: Tensor) -> Tensor:
        observation, action, advantage = samples
        return surrogate(
            network, parameters, observation=observation, action=action, advantage=advantage
        )

    parameters = {
        # A copy for each fragment: the derivative of their sum by one of them is its fragment's.
        name: value.detach().expand(len(fragments), *value.shape).clone().requires_grad_()
        for name, value in leaves(network, policy_only=True, flat=start.parameters).items()
    }
    at = fragments.to(batch.observation.device)
    samples = [
        column.view(batch.num_trajectories, -1, *column.shape[1:])[at]
        for column in (batch.observation, batch.action, batch.advantage)
    ]
    with torch.enable_grad():
        total = torch.func.vmap(values)(parameters, *samples).sum()
        parts = torch.autograd.grad(total, tuple(parameters.values()), materialize_grads=True)
    return torch.cat([part.reshape(len(fragments), -1) for part in parts], dim=1)
