"""CrossQ's gradient steps: SAC's with normalised networks, and without slow copies.

Bhatt et al., "CrossQ: batch normalization in deep reinforcement learning for greater sample
efficiency and simplicity", ICLR 2024, arXiv 1902.05605, section 3 and figure 2.

Legend: N samples; A action size.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from learning.networks.batch_renorm import NormalisedMlps
from learning.networks.soft_actor_critic import initialise, values
from learning.networks.squashed_gaussian import squashed_sample
from learning.updates.replay_steps import half_squared_errors
from learning.updates.sac_steps import SacSteps
from shared.policy.blocks import Dense


class CrossqSteps(SacSteps):
    """The networks, the temperature and their optimisers."""

    policy: NormalisedMlps
    critics: NormalisedMlps

    def _build(
        self, policy: Sequence[Dense], critic: Sequence[Dense], *, seed: int
    ) -> dict[str, Tensor]:
        self.policy = NormalisedMlps(policy, number=1)
        self.critics = NormalisedMlps(critic, number=2)
        initialise(seed, self.policy, self.critics)
        return {
            f"{name}.{kind}": flat
            for name, each in (("policy", self.policy), ("critics", self.critics))
            for kind, flat in (("statistics", each.statistics), ("minibatches", each.minibatches))
        }

    def _training_outputs(self, observation: Tensor) -> Tensor:
        return self.policy.training_outputs(observation)[0]

    def _critic_loss(self, rows: Tensor, noise: Tensor, temperature: float) -> Tensor:
        """Return SAC's, the values of both moments computed in one pass: one normalisation."""
        columns = self.columns
        observation, following = rows[:, columns.observation], rows[:, columns.following]
        with torch.no_grad():
            action, log_prob = squashed_sample(self.policy.outputs(following)[0], noise)
        both = values(
            self.critics.training_outputs,
            torch.cat((observation, following)),
            torch.cat((rows[:, columns.action], action)),
        )
        now, after = zip(*(found.chunk(2) for found in both), strict=True)
        value = torch.minimum(*(each.detach() for each in after))
        target = self._target(rows, value - temperature * log_prob)
        return half_squared_errors((now[0], now[1]), target)

    def _apply(self, name: str, gradient: Tensor, loss: Tensor) -> list[float] | None:
        """Step as SAC does; running statistics follow with it, and without finite ones no step."""
        normalised = {"policy": self.policy, "critics": self.critics}.get(name)
        if normalised is not None and not normalised.can_follow:
            return None
        taken = super()._apply(name, gradient, loss)
        if normalised is not None and taken is not None:
            normalised.follow()
        return taken

    def _follow(self) -> None:
        """Do nothing: there are no slow copies."""
