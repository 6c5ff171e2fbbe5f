"""Generalised advantage estimation with episodes that end, are cut, or outlive the fragment.

Schulman et al., "High-dimensional continuous control using generalized advantage estimation", ICLR
2016, equations 11-16. Legend: T steps; B environments.
"""

import torch
from torch import Tensor

from learning.returns.scan import carried_back, require_steps


def generalised_advantages(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    discount: float,
    gae_lambda: float,
) -> Tensor:
    """Return the advantage of every step, # [T, B] float32.

    For t from T - 1 down to 0::

        delta_t = r_t + discount * (1 - terminated_t) * next_v_t - v_t
        A_t     = delta_t + discount * lambda * (1 - terminated_t or truncated_t) * A_{t+1}

    with A_T = 0. A terminal state has no value, so `terminated` cuts the bootstrap and the
    recursion. A time limit ends the episode but not the task, so `truncated` cuts the recursion
    only; a step with both flags counts as terminated. The end of the fragment needs no flag: it
    bootstraps from the last `next_value`.

    Args:
        reward: r_t. # [T, B]
        value: V(s_t). # [T, B]
        next_value: V of the state step t led to: the next row's, or the final observation's where
            the episode was truncated; ignored where it terminated. # [T, B]
        terminated: # [T, B] bool
        truncated: # [T, B] bool
        discount: Gamma, in [0, 1].
        gae_lambda: Lambda, in [0, 1].

    Raises:
        ValueError: Shapes differ or are not [T, B].
    """
    require_steps(
        reward=reward,
        value=value,
        next_value=next_value,
        terminated=terminated,
        truncated=truncated,
    )
    bootstrap = torch.where(terminated, torch.zeros_like(next_value), next_value)
    delta_t = reward + discount * bootstrap - value
    carry_t = (discount * gae_lambda) * (~(terminated | truncated)).to(reward.dtype)
    return carried_back(delta_t, carry_t)


def normalised(advantage: Tensor) -> Tensor:
    """Return `advantage` with mean 0 and (population) standard deviation 1.

    The deviation is bounded below by 1e-4 as in RLlib, so equal advantages become zeros.
    """
    centred = advantage - advantage.mean()
    return centred / centred.square().mean().sqrt().clamp_(min=1e-4)


def normalised_minibatch(advantage: Tensor) -> Tensor:
    """Return `advantage` # [..., n] with mean 0 and sample standard deviation 1 over each row.

    CleanRL's form: the deviation has n - 1 below it (n where that is 0) and 1e-8 beside it.
    """
    correction = min(1, advantage.shape[-1] - 1)
    deviation, mean = torch.std_mean(advantage, dim=-1, correction=correction, keepdim=True)
    return (advantage - mean).div_(deviation.add_(1e-8))
