"""On-policy learning: from one whole round of the present policy, once."""

from collections.abc import Sequence

from learning.algorithms.policy_update import PolicyUpdate
from shared.trajectory.trajectory import Trajectory


class OnPolicy:
    """An `Algorithm` takes in a round by this; its subclass says how to `learn` from it."""

    in_order = True
    _round: tuple[Trajectory, ...] = ()
    _is_whole = False

    def learn(self, trajectories: Sequence[Trajectory]) -> PolicyUpdate:
        """Improve the policy with one round of trajectories, in whatever order."""
        raise NotImplementedError

    def add(self, trajectories: Sequence[Trajectory]) -> None:
        """Take in trajectories of the round."""
        self._round = (*self._round, *trajectories)

    def flush(self) -> None:
        """Take the round for whole."""
        self._is_whole = bool(self._round)

    @property
    def ready(self) -> bool:
        """Whether there is a whole round."""
        return self._is_whole

    has_fresh = ready

    def update(self) -> PolicyUpdate:
        """Improve the policy with the round."""
        trajectories, self._round, self._is_whole = self._round, (), False
        return self.learn(trajectories)

    def advance(self, policy_version: int) -> None:
        """Do nothing: trajectories say which version they are of."""
