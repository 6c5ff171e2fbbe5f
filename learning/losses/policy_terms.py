"""The policy's terms of the losses, with their derivatives in closed form.

A part whose coefficient is 0 is left out: 0 x infinity would be NaN.
"""

from typing import TYPE_CHECKING

from learning.arrays import Array, namespace
from learning.losses.loss_terms import Term, means
from learning.networks.step_terms import StepTerms
from shared.trajectory.columns import Columns

if TYPE_CHECKING:
    from torch import Tensor

CLIPPED_STATS = ("policy_loss", "kl", "entropy", "clip_fraction")
LOG_PROB_STATS = ("policy_loss", "kl", "entropy")


def clipped_policy(
    outputs: Array,
    minibatch: Columns[Array],
    distribution: StepTerms[Array],
    *,
    clip: float,
    entropy_coefficient: float,
    kl_coefficient: float,
) -> Term[Array]:
    """Return the clipped surrogate of PPO and IMPACT, with entropy bonus and KL penalty.

    Stats are CLIPPED_STATS.

    Args:
        outputs: The network's, of the new policy. # [n, D]
        minibatch: `log_prob` is the ratio's reference, `outputs` the KL's.
        distribution: What outputs parametrise.
        clip: Half-width of the interval the ratio is clipped to.
        entropy_coefficient: Weight of the bonus.
        kl_coefficient: Weight of the penalty.
    """
    xp, n = namespace(outputs), len(outputs)
    new = distribution.terms(minibatch.outputs, outputs, minibatch.action)
    ratio = xp.exp(new.log_prob - minibatch.log_prob)
    kept = ratio.clip(1.0 - clip, 1.0 + clip)
    unclipped, clipped = minibatch.advantage * ratio, minibatch.advantage * kept
    # If the clipped branch is the smaller, the sample does not move the policy.
    by_log_prob = xp.where(unclipped > clipped, 0.0, unclipped)
    gradient: Array = new.score * (by_log_prob * (-1.0 / n))[:, None]
    if kl_coefficient:
        gradient += new.kl_gradient() * (kl_coefficient / n)
    if entropy_coefficient:
        gradient -= distribution.entropy_gradient(outputs) * (entropy_coefficient / n)
    losses, moved = -xp.minimum(unclipped, clipped), xp.where(kept == ratio, 0.0, 1.0)
    return Term(gradient, means(losses, new.kl, new.entropy, moved))


def weighted_log_prob(
    outputs: Array,
    minibatch: Columns[Array],
    distribution: StepTerms[Array],
    *,
    weight: float,
    entropy_coefficient: float,
) -> Term[Array]:
    """Return the policy gradient's loss, minus advantage times log-probability, with a bonus.

    Stats are LOG_PROB_STATS.

    Args:
        outputs: The network's, of the new policy. # [n, D]
        minibatch: `outputs` is the reference of the KL among the stats.
        distribution: What outputs parametrise.
        weight: Of each sample.
        entropy_coefficient: Weight of the entropy bonus.
    """
    new = distribution.terms(minibatch.outputs, outputs, minibatch.action)
    gradient: Array = new.score * (minibatch.advantage * -weight)[:, None]
    if entropy_coefficient:
        gradient -= distribution.entropy_gradient(outputs) * (entropy_coefficient * weight)
    return Term(gradient, means(-(minibatch.advantage * new.log_prob), new.kl, new.entropy))


def clipped_objective(log_ratio: "Tensor", advantage: "Tensor", *, clip: float) -> "Tensor":
    """Return the clipped surrogate of each sample # [n], for autograd: to be maximised.

    Args:
        log_ratio: Log-probability less that of the reference. # [n]
        advantage: # [n]
        clip: Half-width of the interval the ratio is clipped to.
    """
    ratio = log_ratio.exp()
    return (advantage * ratio).minimum(advantage * ratio.clamp(1.0 - clip, 1.0 + clip))
