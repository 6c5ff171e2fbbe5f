"""On-policy learning: from one whole round of the present policy, once."""

from collections.abc import Sequence

from learning.algorithms.policy_update import PolicyUpdate
from shared.trajectory.trajectory import Trajectory


class OnPolicy:
    """Collects a round for an `Algorithm`; the subclass defines how to `learn` from it."""

    _round: tuple[Trajectory, ...] = ()
    _is_whole = False

    def learn(self, trajectories: Sequence[Trajectory]) -> PolicyUpdate:
        """Improve the policy with one round of trajectories, in any order."""
        raise NotImplementedError

    def add(self, trajectories: Sequence[Trajectory]) -> None:
        """Add trajectories of the round."""
        self._round = (*self._round, *trajectories)

    def flush(self) -> None:
        """Treat the round as complete."""
        self._is_whole = bool(self._round)

    @property
    def ready(self) -> bool:
        """Whether there is a complete round."""
        return self._is_whole

    has_fresh = ready

    def update(self) -> PolicyUpdate:
        """Improve the policy with the round."""
        trajectories, self._round, self._is_whole = self._round, (), False
        return self.learn(trajectories)

    def advance(self, policy_version: int) -> None:
        """Do nothing: trajectories carry their version."""
