"""IMPALA's loss, and its derivative in closed form.

Per sample::

    - A log pi(a|s)
    + value_coefficient * (V(s) - v)^2 / 2
    - entropy_coefficient * entropy

summed over the minibatch, as RLlib does, or averaged; A is rho times V-trace's advantage and v its
target, constants of the minibatch. Espeholt et al., "IMPALA: Scalable distributed deep-RL with
importance weighted actor-learner architectures", ICML 2018, section 4.2.

`impala_loss` states the formula and can be differentiated by autograd; `impala_gradient` gives the
same number and the derivative without a graph, which is what training runs on.
"""

import torch
from torch import Tensor

from services.learner.algorithms.loss_gradient import LossGradient
from services.learner.algorithms.minibatch import Minibatch
from services.learner.distributions import Distribution
from shared.impala_hyperparameters import ImpalaHyperparameters

STATS = ("policy_loss", "value_loss", "kl", "entropy", "loss")


def impala_loss(
    outputs: Tensor,
    value: Tensor,
    minibatch: Minibatch,
    distribution: Distribution,
    hyperparameters: ImpalaHyperparameters,
) -> Tensor:
    """Return the loss of a minibatch, # [].

    Args:
        outputs: The new policy's outputs. # [n, D]
        value: The new values. # [n]
        minibatch: The samples.
        distribution: What `outputs` parametrise.
        hyperparameters: Coefficients and reduction.
    """
    loss = -minibatch.advantage * distribution.log_prob(outputs, minibatch.action)
    error = value - minibatch.value_target
    loss = loss + 0.5 * hyperparameters.value_coefficient * error.square()
    if hyperparameters.entropy_coefficient:
        loss = loss - hyperparameters.entropy_coefficient * distribution.entropy(outputs)
    return loss.sum() if hyperparameters.loss_reduction == "sum" else loss.mean()


def impala_gradient(
    outputs: Tensor,
    value: Tensor,
    minibatch: Minibatch,
    distribution: Distribution,
    hyperparameters: ImpalaHyperparameters,
) -> LossGradient:
    """Return the derivative of `impala_loss`, and stats in the order of STATS.

    Stats are means over the samples, but for `loss`, which is reduced as the hyper-parameters say;
    `kl` is from the policy before the update. Arguments as in `impala_loss`, without gradient
    tracking.
    """
    n = len(value)
    weight = 1.0 if hyperparameters.loss_reduction == "sum" else 1.0 / n
    entropy_coefficient = hyperparameters.entropy_coefficient
    new = distribution.terms(minibatch.outputs, outputs, minibatch.action)
    d_outputs = new.score * minibatch.advantage.mul(-weight).unsqueeze(1)
    if entropy_coefficient:
        d_outputs.sub_(distribution.entropy_gradient(outputs), alpha=entropy_coefficient * weight)
    error = value - minibatch.value_target
    means = torch.stack(
        (
            (minibatch.advantage * new.log_prob).neg_(),
            error.square().mul_(0.5),
            new.kl,
            new.entropy,
        )
    ).mean(1)
    loss = means[0] + hyperparameters.value_coefficient * means[1]
    if entropy_coefficient:
        loss = loss - entropy_coefficient * means[3]
    return LossGradient(
        outputs=d_outputs,
        value=error.mul_(hyperparameters.value_coefficient * weight),
        stats=torch.cat((means, (loss * (weight * n)).unsqueeze(0))),
    )
