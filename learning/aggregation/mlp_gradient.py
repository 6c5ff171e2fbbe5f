"""The gradient of a loss by both networks' flat parameters, in NumPy and without torch.

Learner functions compute it. On a learner's own CPU `learning.networks.mlp_network` does the same
operations in the same order, with the same bits.

Legend: n samples; P parameters, gaps for alignment included; S stats.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from learning.aggregation.truncation import advantage_factor, truncated_ratio
from learning.arrays import Floats
from learning.losses.loss_terms import LossRule, MinibatchLoss
from learning.networks.numpy_mlp import (
    HalfParts,
    NetworkHalf,
    Parts,
    differentiate,
    policy_outputs,
)
from learning.networks.step_terms import GaussianTerms
from shared.contracts.learner_functions import LearnerFunctions
from shared.trajectory.columns import Columns

_TERMS = GaussianTerms()


@dataclass(frozen=True, slots=True)
class MlpGradient:
    """Gradients of one network's loss at any parameters."""

    policy: NetworkHalf
    value: NetworkHalf

    def outputs(self, flat: Floats, observation: Floats) -> Floats:
        """Return the policy's distribution parameters # [n, D] at parameters # [P]."""
        policy, _ = self._parts(flat)
        return policy_outputs(policy.mlp.forward(observation)[1], policy.log_std)

    def at(self, flat: Floats, samples: Columns[Floats], rule: LossRule) -> tuple[Floats, Floats]:
        """Return the gradient # [P] of a loss at some parameters, and the loss's stats # [S]."""
        gradient = np.zeros_like(flat)
        loss: MinibatchLoss[Floats] = MinibatchLoss(rule, samples, _TERMS)
        differentiate(samples.observation, loss, self._parts(flat), into=self._parts(gradient))
        return gradient, loss.stats()

    def _parts(self, flat: Floats) -> Parts:
        return HalfParts.both(flat, (self.policy, self.value))


def function_gradient(
    network: MlpGradient,
    flat: Floats,
    others: Sequence[Floats],
    samples: Columns[Floats],
    rule: LossRule,
    how: LearnerFunctions,
) -> tuple[Floats, Floats]:
    """Return a learner function's answer: a gradient # [P], and the loss's stats # [S].

    With several local passes it is the change of the weights divided by minus the step sizes: the
    mean of the gradients along the way.

    Args:
        network: Positions of its parameters.
        flat: Its weights # [P].
        others: Weights that other functions work on, inside the staleness bound # [P] each.
        samples: Its slice; ratios are truncated to `behaviour_log_prob`, the acting policy's.
        rule: The loss.
        how: Truncation, objective, local passes.
    """
    with np.errstate(all="ignore"):
        given = _truncated(network, flat, others, samples, how)
        if how.local_passes == 1:
            return network.at(flat, given, rule)
        here, all_stats = flat.copy(), []
        for _ in range(how.local_passes):
            gradient, stats = network.at(here, given, rule)
            all_stats.append(stats)
            here -= np.float32(how.local_rate) * gradient
        change = (flat - here) / np.float32(how.local_rate * how.local_passes)
        return change, np.mean(all_stats, axis=0)


def _truncated(
    network: MlpGradient,
    flat: Floats,
    others: Sequence[Floats],
    samples: Columns[Floats],
    how: LearnerFunctions,
) -> Columns[Floats]:
    """Return the samples with truncated ratios in their advantages."""
    if how.objective == "clipped" and how.truncation == "off":
        return samples

    def log_prob(parameters: Floats) -> Floats:
        new = network.outputs(parameters, samples.observation)
        found: Floats = _TERMS.terms(samples.outputs, new, samples.action).log_prob
        return found

    here = log_prob(flat)
    own = np.exp(here - samples.behaviour_log_prob)
    of_others = [np.exp(log_prob(each) - samples.behaviour_log_prob) for each in others]
    if how.objective == "clipped":
        factor = advantage_factor(own, of_others, form=how.truncation, rho=how.rho)
        return samples.replaced(advantage=samples.advantage * factor)
    weight = truncated_ratio(own, of_others, form=how.truncation, rho=how.rho)
    return samples.replaced(advantage=samples.advantage * weight, log_prob=here)
