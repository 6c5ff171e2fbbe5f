"""V-trace: value targets and advantages for trajectories that another policy made.

Espeholt et al., "IMPALA: Scalable distributed deep-RL with importance weighted actor-learner
architectures", ICML 2018, section 4.1. The recursion is remark 1 there, the trace weights' lambda
remark 2. Legend: T steps; B environments; mu the behaviour policy, pi the policy evaluated.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from learning.returns.scan import carried_back, require_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Returns:
    """Targets and advantages of the steps of some fragments."""

    target: Tensor  # [T, B], v_t: what V(s_t) is to become
    advantage: Tensor  # [T, B], q_t - V(s_t); the policy gradient weighs it with rho
    rho: Tensor | None = None  # [T, B], min(rho_clip, pi / mu); None on-policy, where it is 1


def vtrace(
    log_ratio: Tensor,
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    discount: float,
    trace_lambda: float = 1.0,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> Returns:
    """Return the V-trace targets and advantages of every step.

    With ratio_t = pi(a_t|s_t) / mu(a_t|s_t), for t from T - 1 down to 0::

        rho_t   = min(rho_clip, ratio_t)
        c_t     = lambda * min(c_clip, ratio_t)
        delta_t = rho_t * (r_t + discount * next_v_t - V_t)
        v_t     = V_t + delta_t + discount * c_t * (v_{t+1} - V_{t+1})
        q_t     = r_t + discount * (lambda * v_{t+1} + (1 - lambda) * V_{t+1})

    With lambda = 1, q_t is the paper's. Below 1 the mixture makes the advantage of pi = mu the
    generalised advantage estimate, as in rlax's `vtrace_td_error_and_advantage`.

    A terminal state has no value: `terminated` puts 0 for next_v_t and v_{t+1}. `truncated`, like
    the end of the fragment, ends the recursion and puts next_v_t for v_{t+1}. A step with both
    flags counts as terminated.

    Args:
        log_ratio: log(pi / mu) of the actions taken. # [T, B]
        reward: r_t. # [T, B]
        value: V(s_t). # [T, B]
        next_value: V of the state step t led to, the final observation's where the episode was
            truncated; ignored where it terminated. # [T, B]
        terminated: # [T, B] bool
        truncated: # [T, B] bool
        discount: Gamma, in [0, 1].
        trace_lambda: Lambda, in [0, 1]; 1 is the paper's form.
        rho_clip: Bound of rho: decides which policy's value function is learned.
        c_clip: Bound of c: decides how fast; not above `rho_clip`.

    Raises:
        ValueError: Shapes differ or are not [T, B].
    """
    values = {"value": value, "next_value": next_value}
    ends = {"terminated": terminated, "truncated": truncated}
    require_steps(log_ratio=log_ratio, reward=reward, **values, **ends)
    ratio = torch.exp(log_ratio)
    rho_t = ratio.clamp(max=rho_clip)
    goes_on = (~(terminated | truncated)).to(reward.dtype)
    bootstrap = discount * torch.where(terminated, torch.zeros_like(next_value), next_value)
    delta_t = rho_t * (reward + bootstrap - value)
    carry_t = (discount * trace_lambda) * ratio.clamp(max=c_clip) * goes_on
    correction = carried_back(delta_t, carry_t)  # v_t - V_t
    q_t = reward + bootstrap
    # At the end of an episode and of the fragment there is no v_{t+1}: V stays.
    q_t[:-1] += (discount * trace_lambda) * goes_on[:-1] * correction[1:]
    return Returns(target=value + correction, advantage=q_t - value, rho=rho_t)
