"""One round's experience as arrays, with a column for each environment.

Legend: `T` steps (the fragment), `n` columns (actors that answered, times the environments of
each), `F` episodes cut by a time limit, `E` finished episodes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nitro.pool.policy import Policy
from shared.contracts.environment_spec import EnvironmentSpec
from shared.trajectory.columns import Columns, side_by_side
from shared.trajectory.trajectory import Trajectory

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[Any]


_STEPS = ("observations", "actions", "log_probs", "rewards", "terminated", "truncated")
_FINALS = ("last_observations", "final_observations", "final_steps", "final_columns")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EpisodePart:
    """The part of one episode that lies in a batch: `L` steps of one column."""

    column: int
    first_step: int
    """Its steps in the column; the episode itself may have begun in an earlier batch."""
    observations: Array  # [L, *obs]
    actions: Array  # [L, *act]
    log_probs: Array  # [L] float32
    rewards: Array  # [L] float32
    last_observation: Array | None  # [*obs]
    """Observation after the last step; None after a terminated episode inside a fragment, where it
    is not needed."""
    terminated: bool
    truncated: bool
    """Both are False if the fragment ended first; the next batch may continue the episode."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """The experience of a round's actors, read-only; lost actors have no columns.

    Step `t` of a column takes `actions[t]` at `observations[t]`. Where an episode ends inside the
    fragment, the environment is reset, and `observations[t + 1]` is the first of the next one.
    A step that is both terminated and truncated counts as terminated.

    Attributes:
        observations: The policy's inputs, [T, n, *obs] float32 or uint8.
        last_observations: The observations after the last step, [n, *obs]: to bootstrap from if
            that step ended no episode, or truncated it.
        actions: As sampled, before they are clipped or rescaled: [T, n, A] float32, or [T, n] or
            [T, n, choices] int64 numbered from 0.
        log_probs: Log-probability or density of each action under the policy that chose it,
            [T, n] float32.
        rewards: [T, n] float32.
        terminated: Whether the episode ended in a terminal state, [T, n] bool.
        truncated: Whether a time limit cut it, [T, n] bool.
        final_observations: The last observation of every episode that a time limit cut, [F, *obs],
            to bootstrap from. Rows are in the order of columns, then of steps.
        final_steps: Step of each final observation, [F] int64.
        final_columns: Column of each final observation, [F] int64.
        actors: Index of the actor of each column, [n] int64.
        versions: Version of the policy that chose each column's actions, [n] int64.
        returns: Undiscounted returns of the episodes that ended in the batch, [E] float32, counted
            from their first step, even if it was in an earlier batch.
        lengths: Their steps, [E] int32.
        round: Number of the round, from 0; also for a stream's fragments.
        num_launched: Number of launched actors; lost actors have no columns.
        environment: Form of observations and actions.
        policy: The published policy that chose the actions.
        bill: Returns the round's bill; see `cost_usd`.
    """

    observations: Array
    last_observations: Array
    actions: Array
    log_probs: Array
    rewards: Array
    terminated: Array
    truncated: Array
    final_observations: Array
    final_steps: Array
    final_columns: Array
    actors: Array
    versions: Array
    returns: Array
    lengths: Array
    round: int
    num_launched: int
    environment: EnvironmentSpec
    policy: Policy
    bill: Callable[[], float | None]

    @property
    def num_steps(self) -> int:
        """Environment steps in the batch, T * n."""
        return int(self.rewards.size)

    @property
    def num_columns(self) -> int:
        """Environments side by side, n."""
        return int(self.rewards.shape[1])

    @property
    def cost_usd(self) -> float | None:
        """The round's bill in dollars; None until it is final, with a later round's plan."""
        return self.bill()

    def torch(self, device: object = "cpu") -> "Columns[Tensor]":
        """Return the arrays of steps and of final observations as tensors on a device, copied.

        They have the same names and shapes: `batch.torch("cuda").observations`.

        Args:
            device: A torch device, for example `cuda`.

        Raises:
            ImportError: torch is not installed.
        """
        import torch

        arrays = self._named(*_STEPS, *_FINALS)
        return arrays.mapped(lambda array: torch.tensor(array, device=device))  # type: ignore[arg-type]

    def flat(self) -> Columns[Array]:
        """Return the steps on one axis of `T * n`, time first: step `t` of column `i` is `t n + i`.

        They have the same names: `batch.flat().rewards` # [T * n].
        """
        return self._named(*_STEPS).mapped(lambda array: array.reshape(-1, *array.shape[2:]))

    def _named(self, *names: str) -> Columns[Array]:
        return Columns(**{name: getattr(self, name) for name in names})

    def episodes(self) -> list[EpisodePart]:
        """Return the parts of episodes in the batch, by column and then by time."""
        finals = {
            (int(column), int(step)): observation
            for column, step, observation in zip(
                self.final_columns, self.final_steps, self.final_observations, strict=True
            )
        }
        return [part for i in range(self.num_columns) for part in self._column(i, finals)]

    def _column(self, i: int, finals: dict[tuple[int, int], Array]) -> Iterator[EpisodePart]:
        num_steps, first = len(self.rewards), 0
        ends = np.flatnonzero(self.terminated[:, i] | self.truncated[:, i]).tolist()
        for end in [*ends, *([] if ends and ends[-1] == num_steps - 1 else [num_steps - 1])]:
            at = slice(first, end + 1)
            terminated = bool(self.terminated[end, i])
            last = finals.get((i, end))
            if last is None and end == num_steps - 1:
                last = self.last_observations[i]
            yield EpisodePart(
                column=i,
                first_step=first,
                observations=self.observations[at, i],
                actions=self.actions[at, i],
                log_probs=self.log_probs[at, i],
                rewards=self.rewards[at, i],
                last_observation=last,
                terminated=terminated,
                truncated=bool(self.truncated[end, i]) and not terminated,
            )
            first = end + 1


def batch_of(
    trajectories: Sequence[Trajectory],
    environment: EnvironmentSpec,
    *,
    policy: Policy,
    num_launched: int,
    bill: Callable[[], float | None],
) -> Batch:
    """Return actors' trajectories as a batch, with a column per environment, in the given order.

    Args:
        trajectories: At least one, all of one round.
        environment: Form of observations and actions.
        policy: The policy that chose the actions.
        num_launched: Actors of the round.
        bill: Returns the round's bill, once known.
    """
    whole = side_by_side(trajectories)
    t, b = whole.final_rows
    by_column = np.lexsort((t, b))
    for array in whole.arrays.values():
        array.flags.writeable = False
    per_column = [
        (t.actor_index, t.policy_version) for t in trajectories for _ in range(t.num_envs)
    ]
    return Batch(
        observations=whole.observation[:-1],
        last_observations=whole.observation[-1],
        actions=whole.action,
        log_probs=whole.log_prob,
        rewards=whole.reward,
        terminated=whole.terminated,
        truncated=whole.truncated,
        final_observations=whole.final_observation[by_column],
        final_steps=t[by_column],
        final_columns=b[by_column],
        actors=np.array([actor for actor, _ in per_column], np.int64),
        versions=np.array([version for _, version in per_column], np.int64),
        returns=whole.episode_returns,
        lengths=whole.episode_lengths,
        round=trajectories[0].round,
        num_launched=num_launched,
        environment=environment,
        policy=policy,
        bill=bill,
    )
