"""Actions of a normal distribution squashed into (-1, 1): `a = tanh(u)`, `u ~ N(mean, std)`.

Haarnoja et al., "Soft actor-critic algorithms and applications", arXiv 1812.05905, appendix C. The
network's outputs are the means, then what gives the log-standard deviations: as in CleanRL a tanh
maps it onto [LOG_STD_MIN, LOG_STD_MAX], where the authors, and Stable-Baselines3, clamp it.

Legend: N samples; A action dimensions.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from learning.networks.step_terms import normal_log_prob
from shared.policy.squashed_gaussian import LOG_STD_MAX, LOG_STD_MIN

_LOG_TWO = math.log(2.0)


def bounded_log_std(raw: Tensor) -> Tensor:
    """Return log-standard deviations # [N, A] for the second half of the outputs."""
    return LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (torch.tanh(raw) + 1.0)


def squashed_sample(outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return actions # [N, A] and their log-densities # [N], both differentiable by `outputs`.

    Args:
        outputs: Of the policy network. # [N, 2A]
        noise: Of a standard normal distribution. # [N, A]
    """
    mean, raw = outputs.chunk(2, dim=1)
    log_std = bounded_log_std(raw)
    before = mean + torch.exp(log_std) * noise
    # log(1 - tanh(u)^2) in a form that neither overflows nor loses its digits far from 0.
    log_slope = 2.0 * (_LOG_TWO - before - functional.softplus(-2.0 * before))
    log_prob = normal_log_prob(log_std.sum(1), noise * noise) - log_slope.sum(1)
    return torch.tanh(before), log_prob
