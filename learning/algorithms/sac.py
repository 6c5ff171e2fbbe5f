"""Soft actor-critic, and CrossQ, which has normalised networks and no slow copies.

Haarnoja et al., "Soft actor-critic algorithms and applications", arXiv 1812.05905: twin critics
with slow copies, a squashed Gaussian policy, a learned temperature (`learning.updates.sac_steps`).
Bhatt et al., "CrossQ: batch normalization in deep reinforcement learning for greater sample
efficiency and simplicity", ICLR 2024 (`learning.updates.crossq_steps`).

Stats of both are `critic_loss` (half the squared errors of both critics, added), `policy_loss`,
`entropy` (nats), `temperature`, `value` (of the policy's actions, the smaller of both critics') and
the gradients' lengths `critic_grad_norm` and `grad_norm`.
"""

from learning.algorithms.replay_learner import ReplayLearner
from learning.updates.crossq_steps import CrossqSteps
from learning.updates.sac_steps import SacSteps


class Sac(ReplayLearner):
    """SAC: an `Algorithm`."""

    steps = SacSteps


class Crossq(ReplayLearner):
    """CrossQ: an `Algorithm`."""

    steps = CrossqSteps
