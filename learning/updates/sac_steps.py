"""SAC's gradient steps: of the temperature, of both critics and of the policy.

Haarnoja et al., "Soft actor-critic algorithms and applications", arXiv 1812.05905, equations 5, 6,
9 and 18. The order is that of Stable-Baselines3; all three use the temperature from before the
step. Autograd defines every gradient and computes it.

Legend: N samples; W numbers of a row; A action size.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from learning.data.transitions import RowColumns
from learning.networks.soft_actor_critic import SoftActorCritic, values
from learning.networks.squashed_gaussian import squashed_sample
from learning.updates.gradient import Gradient
from learning.updates.optimiser import AdamRule, FlatAdam
from shared.hyperparameters.sac import SacHyperparameters
from shared.policy.blocks import dense_blocks


class SacSteps:
    """The networks, the temperature and their optimisers."""

    def __init__(self, columns: RowColumns, rule: SacHyperparameters, *, seed: int) -> None:
        """Initialise them, the first weights from the seed."""
        self.columns = columns
        policy_sizes = (columns.observation_size, *rule.hidden_sizes, 2 * columns.action_size)
        hidden = rule.value_hidden_sizes or rule.hidden_sizes
        critic_sizes = (columns.observation_size + columns.action_size, *hidden, 1)
        policy, critic = (
            dense_blocks(sizes, activation=rule.activation, layer_norm=rule.layer_norm)
            for sizes in (policy_sizes, critic_sizes)
        )
        self.networks = SoftActorCritic(policy, critic, seed=seed)
        self._rule = rule
        self._log_temperature = torch.full((1,), math.log(rule.first_temperature))
        learned = {
            "policy": self.networks.policy.flat,
            "critics": self.networks.critics.flat,
            "temperature": self._log_temperature,
        }
        adam = AdamRule(
            learning_rate=rule.learning_rate, epsilon=rule.adam_epsilon, gradient_norm_max=0.0
        )
        self._adams = {name: FlatAdam(flat, rule=adam) for name, flat in learned.items()}
        self.flats = learned | {"targets": self.networks.targets.flat}
        """What another job can begin with, by name."""
        self.moments = {
            f"{name}.{moment}": flat
            for name, adam in self._adams.items()
            for moment, flat in adam.flats.items()
        }
        """The optimisers'."""

    @property
    def adam_steps(self) -> dict[str, bool | int | float | str]:
        """Steps that each optimiser has taken, by name."""
        return {f"{name}.adam_step": adam.steps for name, adam in self._adams.items()}

    def load_adam_steps(self, scalars: Mapping[str, bool | int | float | str]) -> None:
        """Continue from `adam_steps`, among others."""
        for name, adam in self._adams.items():
            adam.steps = int(scalars[f"{name}.adam_step"])

    def take(self, rows: Tensor, noises: Tensor) -> dict[str, float] | None:
        """Take one gradient step of everything; None where a part of it was not finite.

        Args:
            rows: The minibatch. # [N, W]
            noises: For the actions at its observations, and at those after them. # [2, N, A]
        """
        nets, columns = self.networks, self.columns
        observation = rows[:, columns.observation]
        temperature = float(self._log_temperature.exp())
        target = self._target(rows, noises[1], temperature)
        action, log_prob = squashed_sample(nets.policy_outputs(observation), noises[0])

        first, second = values(nets.critics, observation, rows[:, columns.action])
        critic_loss = 0.5 * ((first - target).square().mean() + (second - target).square().mean())
        critic = self._apply("critics", nets.critics.differentiate(critic_loss), critic_loss)

        value = torch.minimum(*values(nets.critics, observation, action))
        policy_loss = (temperature * log_prob - value).mean()
        policy = self._apply("policy", nets.policy.differentiate(policy_loss), policy_loss)

        entropy = -float(log_prob.detach().mean())
        # Of -log(temperature) * (log pi + target entropy), whose gradient that is.
        surplus = torch.tensor([entropy - self._rule.target_entropy * self.columns.action_size])
        if self._apply("temperature", surplus, surplus[0]) is None or not (critic and policy):
            return None
        nets.targets.flat.lerp_(nets.critics.flat, self._rule.target_rate)
        return {
            "critic_loss": critic[0],
            "policy_loss": policy[0],
            "entropy": entropy,
            "temperature": temperature,
            "value": float(value.detach().mean()),
            "critic_grad_norm": critic[1],
            "grad_norm": policy[1],
        }

    @torch.no_grad()
    def _target(self, rows: Tensor, noise: Tensor, temperature: float) -> Tensor:
        """Return what the critics are to say of a minibatch's actions # [N]."""
        nets, columns = self.networks, self.columns
        following = rows[:, columns.following]
        action, log_prob = squashed_sample(nets.policy_outputs(following), noise)
        value = torch.minimum(*values(nets.targets, following, action)) - temperature * log_prob
        return rows[:, columns.reward] + self._rule.discount * rows[:, columns.goes_on] * value

    def _apply(self, name: str, gradient: Tensor, loss: Tensor) -> list[float] | None:
        """Step along a gradient; return the loss and its length, or None without a step."""
        stats = loss.detach().reshape(1)
        return self._adams[name].apply(Gradient(flat=gradient, stats=stats))
