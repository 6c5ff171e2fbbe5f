"""SAC's gradient steps: of the temperature, of both critics and of the policy.

Haarnoja et al., "Soft actor-critic algorithms and applications", arXiv 1812.05905, equations 5, 6,
9 and 18. The order is that of Stable-Baselines3; all three use the temperature from before the
step. Autograd defines every gradient and computes it.

Legend: N samples; W numbers of a row; O numbers of an observation; A action size; P parameters.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from learning.data.transitions import RowColumns
from learning.networks.soft_actor_critic import FlatMlps, initialise, values
from learning.networks.squashed_gaussian import squashed_sample
from learning.updates.replay_steps import ReplaySteps, half_squared_errors, network_blocks
from shared.hyperparameters.sac import SacHyperparameters
from shared.policy.blocks import Dense


class SacSteps(ReplaySteps):
    """The networks, the temperature and their optimisers."""

    critics: FlatMlps
    """Two, from an observation and an action to a value."""

    def __init__(self, columns: RowColumns, rule: SacHyperparameters, *, seed: int) -> None:
        """Initialise them, the first weights from the seed."""
        policy, critic = network_blocks(columns, rule)
        followers = self._build(policy, critic, seed=seed)
        self._rule = rule
        self._log_temperature = torch.full((1,), math.log(rule.first_temperature))
        learned = {
            "policy": self.policy.flat,
            "critics": self.critics.flat,
            "temperature": self._log_temperature,
        }
        super().__init__(columns, rule, learned=learned, followers=followers)

    def take(self, rows: Tensor, noises: Tensor) -> dict[str, float] | None:
        """Take one gradient step of the critics, and of the rest when it is due."""
        temperature = float(self._log_temperature.exp())
        critic_loss = self._critic_loss(rows, noises[1], temperature)
        turn = self.adams["critics"].steps % self._rule.policy_delay == 0
        critic = self._apply("critics", self.critics.differentiate(critic_loss), critic_loss)
        policy: dict[str, float] | None = {}
        if turn:
            policy = self._policy_step(rows[:, self.columns.observation], noises[0], temperature)
        if critic is None or policy is None:
            return None
        self._follow()
        return {"critic_loss": critic[0], "critic_grad_norm": critic[1]} | policy

    def _policy_step(
        self, observation: Tensor, noise: Tensor, temperature: float
    ) -> dict[str, float] | None:
        """Step the policy and the temperature; None where a part was not finite."""
        action, log_prob = squashed_sample(self._training_outputs(observation), noise)
        value = torch.minimum(*values(self.critics.outputs, observation, action))
        loss = (temperature * log_prob - value).mean()
        policy = self._apply("policy", self.policy.differentiate(loss), loss)
        entropy = -float(log_prob.detach().mean())
        # Of -log(temperature) * (log pi + target entropy), whose gradient that is.
        surplus = torch.tensor([entropy - self._rule.target_entropy * self.columns.action_size])
        if self._apply("temperature", surplus, surplus[0]) is None or policy is None:
            return None
        return {
            "policy_loss": policy[0],
            "entropy": entropy,
            "temperature": temperature,
            "value": float(value.detach().mean()),
            "grad_norm": policy[1],
        }

    def _build(
        self, policy: Sequence[Dense], critic: Sequence[Dense], *, seed: int
    ) -> dict[str, Tensor]:
        """Make the networks; return what follows them without an optimiser, by name."""
        self.policy = FlatMlps(policy, number=1)
        self.critics, self._targets = (FlatMlps(critic, number=2) for _ in range(2))
        initialise(seed, self.policy, self.critics)
        self._targets.flat.copy_(self.critics.flat)
        return {"targets": self._targets.flat}

    def _training_outputs(self, observation: Tensor) -> Tensor:
        """Return the policy's outputs # [N, 2A] for learning."""
        return self.policy.outputs(observation)[0]

    def _critic_loss(self, rows: Tensor, noise: Tensor, temperature: float) -> Tensor:
        """Return half the mean squared error of either critic, added."""
        columns = self.columns
        with torch.no_grad():
            following = rows[:, columns.following]
            action, log_prob = squashed_sample(self.policy.outputs(following)[0], noise)
            value = torch.minimum(*values(self._targets.outputs, following, action))
            target = self._target(rows, value - temperature * log_prob)
        both = values(self.critics.outputs, rows[:, columns.observation], rows[:, columns.action])
        return half_squared_errors(both, target)

    def _target(self, rows: Tensor, soft_value: Tensor) -> Tensor:
        """Return the critics' targets for a minibatch's actions # [N], given the next steps."""
        goes_on = rows[:, self.columns.goes_on]
        return rows[:, self.columns.reward] + self._rule.discount * goes_on * soft_value

    def _follow(self) -> None:
        """Let the slow copies follow the critics."""
        self._targets.flat.lerp_(self.critics.flat, self._rule.target_rate)
