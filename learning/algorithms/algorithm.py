"""The seam between rounds and a learning algorithm."""

from collections.abc import Sequence
from typing import Protocol

from learning.algorithms.policy_update import (
    PolicyUpdate,
    StateArrays,
    StateScalars,
    UpdateTally,
)
from learning.data.fragments import in_actor_order
from learning.data.transitions import Replay
from learning.detectors.detector import PolicySamples
from learning.networks.actor_critic import ActorCritic
from learning.networks.building import PolicyPayload
from shared.trajectory.trajectory import Trajectory


class Algorithm(Protocol):
    """Learns a policy from the actors' results.

    The loop adds arrivals, calls `update` while `ready` is true, and sets the new policy version
    with `advance`. It publishes the versions that actors will fetch. Trajectories keep the order of
    `add`; equal calls from equal state give equal bits.
    """

    def add(self, trajectories: Sequence[Trajectory]) -> None:
        """Add trajectories, in this order.

        If they are too few to learn from, they wait for more, or for `flush`.
        """
        ...

    def flush(self) -> None:
        """Use the waiting trajectories, however few: no more will arrive soon."""
        ...

    @property
    def ready(self) -> bool:
        """Whether `update` has data: fresh, or to be replayed."""
        ...

    @property
    def has_fresh(self) -> bool:
        """Whether fresh data is waiting; `update` uses it first."""
        ...

    def update(self) -> PolicyUpdate:
        """Improve the policy once.

        If data comes from several policy versions, stats hold at least `policy_lag_mean` and
        `policy_lag_max` (present version less the trajectory's, over the trajectories learned from)
        and `fresh` (1, or 0 for a replay).

        Raises:
            RuntimeError: Not `ready`.
            FloatingPointError: Gradient steps stopped being finite; the policy is as before them.
        """
        ...

    def advance(self, policy_version: int) -> None:
        """Set the present policy's version to `policy_version`: 0 at the start."""
        ...

    @property
    def network(self) -> ActorCritic | None:
        """The present policy and value function; None if detectors see nothing."""
        ...

    @property
    def replay(self) -> Replay | None:
        """Steps that checkpoints save by appending; None where `state` holds everything.

        It is empty when `load_state` is called, and restored next.
        """
        ...

    def policy_payload(self) -> PolicyPayload:
        """Return the present policy as the actors load it."""
        ...

    def samples(self) -> PolicySamples | None:
        """Return the last update for a detector; None without an update.

        Call it once a round, measured or not.
        """
        ...

    def state(self) -> tuple[StateArrays, StateScalars]:
        """Return a copy of everything needed to resume exactly: arrays, and JSON scalars.

        Waiting trajectories are part of it, a `replay` is not.
        """
        ...

    def load_state(self, arrays: StateArrays, scalars: StateScalars) -> None:
        """Continue from what `state` returned."""
        ...

    def begin_from(self, arrays: StateArrays, scalars: StateScalars, *, optimiser: bool) -> None:
        """Begin with the weights and statistics of another job's `state`.

        Args:
            arrays: Of that state.
            scalars: Of that state.
            optimiser: Whether to copy the optimiser's moments, too.

        Raises:
            ValueError: They do not fit; nothing has been changed then.
        """
        ...


def learn_round(algorithm: Algorithm, trajectories: Sequence[Trajectory]) -> PolicyUpdate:
    """Learn from one whole round, until nothing is left to use, as the next policy version.

    PPO uses a round once, IMPALA each batch of it, and IMPACT each up to K times, in passes over
    all of them. A round of more than N batches evicts the oldest from IMPACT's buffer after their
    first use.

    Args:
        algorithm: The learning algorithm.
        trajectories: The round's, in any order.

    Returns:
        The summary of the updates, see `UpdateTally`.

    Raises:
        ValueError: The trajectories do not make a round.
        FloatingPointError: Gradient steps stopped being finite.
    """
    ordered = in_actor_order(trajectories)
    algorithm.add(ordered)
    algorithm.flush()
    tally = UpdateTally()
    while algorithm.ready:
        tally.add(algorithm.update())
    algorithm.advance(ordered[0].policy_version + 1)
    return PolicyUpdate(stats=tally.take())
