"""Gradient steps over single steps from a replay: what each algorithm with a replay defines.

Legend: N samples; W numbers of a row; O numbers of an observation; A action size; P parameters.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from torch import Tensor

from learning.data.transitions import RowColumns
from learning.networks.soft_actor_critic import FlatMlps
from learning.updates.gradient import Gradient
from learning.updates.optimiser import AdamRule, FlatAdam
from shared.hyperparameters.replay import ReplayHyperparameters
from shared.policy.blocks import Dense, dense_blocks


class ReplaySteps(ABC):
    """Everything learned, its optimisers, and what follows it without one."""

    policy: FlatMlps
    """From observations # [N, O] to the parameters of the actions' distributions # [N, 2A]."""

    def __init__(
        self,
        columns: RowColumns,
        rule: ReplayHyperparameters,
        *,
        learned: Mapping[str, Tensor],
        followers: Mapping[str, Tensor],
    ) -> None:
        """Start without moments.

        Args:
            columns: Of a minibatch's rows.
            rule: The job's hyper-parameters.
            learned: Parameters by name # [P], each with an optimiser, stepped in place.
            followers: Further arrays of the state, by name.
        """
        adam = AdamRule(
            learning_rate=rule.learning_rate,
            epsilon=rule.adam_epsilon,
            gradient_norm_max=0.0,
            beta1=rule.adam_beta1,
        )
        self.columns = columns
        self.adams = {name: FlatAdam(flat, rule=adam) for name, flat in learned.items()}
        """The optimisers, by the name of what they step."""
        self.flats = {**learned, **followers}
        """Arrays that another job can begin with, by name."""
        self.moments = {
            f"{name}.{moment}": flat
            for name, adam in self.adams.items()
            for moment, flat in adam.flats.items()
        }
        """The optimisers'."""

    @property
    def adam_steps(self) -> dict[str, bool | int | float | str]:
        """Steps that each optimiser has taken, by name."""
        return {f"{name}.adam_step": adam.steps for name, adam in self.adams.items()}

    def load_adam_steps(self, scalars: Mapping[str, bool | int | float | str]) -> None:
        """Continue from `adam_steps`, among others."""
        for name, adam in self.adams.items():
            adam.steps = int(scalars[f"{name}.adam_step"])

    @abstractmethod
    def take(self, rows: Tensor, noises: Tensor) -> dict[str, float] | None:
        """Take one gradient step.

        Args:
            rows: The minibatch. # [N, W]
            noises: For the actions at its observations, and at those after them. # [2, N, A]

        Returns:
            Stats of the parts that took a step; None where a part was not finite.
        """

    def _apply(self, name: str, gradient: Tensor, loss: Tensor) -> list[float] | None:
        """Step along a gradient; return the loss and the norm, or None without a step."""
        stats = loss.detach().reshape(1)
        return self.adams[name].apply(Gradient(flat=gradient, stats=stats))


def network_blocks(
    columns: RowColumns, rule: ReplayHyperparameters
) -> tuple[tuple[Dense, ...], tuple[Dense, ...]]:
    """Return the blocks of the policy, and those of a critic of an observation and an action."""
    policy_sizes = (columns.observation_size, *rule.hidden_sizes, 2 * columns.action_size)
    hidden = rule.value_hidden_sizes or rule.hidden_sizes
    critic_sizes = (columns.observation_size + columns.action_size, *hidden, 1)
    policy, critic = (
        dense_blocks(sizes, activation=rule.activation, layer_norm=rule.layer_norm)
        for sizes in (policy_sizes, critic_sizes)
    )
    return policy, critic


def half_squared_errors(both: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    """Return those of both critics' values # [N], each halved and averaged, added."""
    first, second = both
    return 0.5 * ((first - target).square().mean() + (second - target).square().mean())
