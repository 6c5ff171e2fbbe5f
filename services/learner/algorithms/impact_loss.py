"""IMPACT's loss in the form RLlib computes it, and its derivative in closed form.

With mu the policy that acted, pi' the target policy and c `importance_clip`, per sample::

    ratio = min(mu / pi', c) * pi / mu  =  pi / max(pi', mu / c)

    - min(A ratio, A clip(ratio, 1 - clip, 1 + clip))
    + value_coefficient * (V(s) - v)^2 / 2
    - entropy_coefficient * entropy
    + kl_coefficient * KL(pi' || pi)

averaged over the minibatch; A is rho times V-trace's advantage and v its target, both of pi' versus
mu. The second form of the ratio shows what it is: PPO's ratio, to a reference that is the target
policy, but no less likely than mu / c. A term whose coefficient is 0 is left out: 0 x infinity
would be NaN. Luo et al., "IMPACT: Importance weighted asynchronous architectures with clipped
target networks", ICLR 2020, section 3.1.

`impact_loss` states the formula and can be differentiated by autograd; `impact_gradient` gives the
same numbers and the derivative without a graph, which is what training runs on.
"""

import math

import torch
from torch import Tensor

from services.learner.algorithms.loss_gradient import LossGradient
from services.learner.algorithms.minibatch import Minibatch
from services.learner.distributions import Distribution
from shared.impact_hyperparameters import ImpactHyperparameters

STATS = ("policy_loss", "value_loss", "kl", "entropy", "clip_fraction", "loss")


def reference_log_prob(
    target_log_prob: Tensor, behaviour_log_prob: Tensor, *, importance_clip: float
) -> Tensor:
    """Return log max(pi', mu / c), which the ratio is taken to; all # [n].

    >>> half, tenth = torch.tensor([0.5]).log(), torch.tensor([0.1]).log()
    >>> reference_log_prob(half, tenth, importance_clip=2.0).exp().tolist()
    [0.5]
    >>> reference_log_prob(tenth, half, importance_clip=2.0).exp().tolist()
    [0.25]
    """
    return torch.maximum(target_log_prob, behaviour_log_prob - math.log(importance_clip))


def impact_loss(
    outputs: Tensor,
    value: Tensor,
    minibatch: Minibatch,
    distribution: Distribution,
    hyperparameters: ImpactHyperparameters,
    *,
    kl_coefficient: float,
) -> Tensor:
    """Return the loss of a minibatch, # [].

    Args:
        outputs: The new policy's outputs. # [n, D]
        value: The new values. # [n]
        minibatch: The samples: `log_prob` is the reference's, `outputs` the target policy's.
        distribution: What `outputs` parametrise.
        hyperparameters: Clip and coefficients.
        kl_coefficient: The present weight of the KL term.
    """
    clip = hyperparameters.clip
    ratio = torch.exp(distribution.log_prob(outputs, minibatch.action) - minibatch.log_prob)
    surrogate = torch.minimum(
        minibatch.advantage * ratio, minibatch.advantage * ratio.clamp(1.0 - clip, 1.0 + clip)
    )
    error = 0.5 * (value - minibatch.value_target).square()
    total = -surrogate.mean() + hyperparameters.value_coefficient * error.mean()
    if hyperparameters.entropy_coefficient:
        total -= hyperparameters.entropy_coefficient * distribution.entropy(outputs).mean()
    if kl_coefficient:
        total += kl_coefficient * distribution.kl(minibatch.outputs, outputs).mean()
    return total


def impact_gradient(
    outputs: Tensor,
    value: Tensor,
    minibatch: Minibatch,
    distribution: Distribution,
    hyperparameters: ImpactHyperparameters,
    *,
    kl_coefficient: float,
) -> LossGradient:
    """Return the derivative of `impact_loss`, and means in the order of STATS.

    Arguments as in `impact_loss`, without gradient tracking.
    """
    n, clip = len(value), hyperparameters.clip
    entropy_coefficient = hyperparameters.entropy_coefficient
    new = distribution.terms(minibatch.outputs, outputs, minibatch.action)
    ratio = torch.exp(new.log_prob - minibatch.log_prob)
    unclipped = minibatch.advantage * ratio
    clipped = minibatch.advantage * ratio.clamp(1.0 - clip, 1.0 + clip)
    # Where the clipped branch is the smaller one, the sample does not move the policy.
    slope = torch.where(unclipped > clipped, 0.0, unclipped)
    d_outputs = new.score * slope.mul_(-1.0 / n).unsqueeze(1)
    if kl_coefficient:
        d_outputs.add_(new.kl_gradient(), alpha=kl_coefficient / n)
    if entropy_coefficient:
        d_outputs.sub_(distribution.entropy_gradient(outputs), alpha=entropy_coefficient / n)
    error = value - minibatch.value_target
    means = torch.stack(
        (
            torch.minimum(unclipped, clipped).neg_(),
            error.square().mul_(0.5),
            new.kl,
            new.entropy,
            (ratio.sub_(1.0).abs_() > clip).to(value.dtype),
        )
    ).mean(1)
    loss = means[0] + hyperparameters.value_coefficient * means[1]
    if kl_coefficient:
        loss = loss + kl_coefficient * means[2]
    if entropy_coefficient:
        loss = loss - entropy_coefficient * means[3]
    return LossGradient(
        outputs=d_outputs,
        value=error.mul_(hyperparameters.value_coefficient / n),
        stats=torch.cat((means, loss.unsqueeze(0))),
    )
