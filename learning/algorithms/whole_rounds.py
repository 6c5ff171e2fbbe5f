"""Off-policy algorithms in synchronous rounds: one round collected, learned from, published.

A round's trajectories become batches, in order of their actors; what does not fill one makes a
smaller one. Then the algorithm has all the time it wants, so it goes on until no batch is left to
use: IMPALA uses each once, IMPACT up to K times, in passes over all of them. A round of more than N
batches puts the oldest out of IMPACT's buffer after their first use.
"""

from collections.abc import Sequence

from learning.algorithms.algorithm import OffPolicyAlgorithm
from learning.algorithms.policy_update import PolicyUpdate, UpdateTally
from learning.data.fragments import in_actor_order
from learning.data.transitions import Replay
from learning.networks.actor_critic import ActorCritic
from shared.trajectory.trajectory import Trajectory


class WholeRounds:
    """An off-policy learner as an `Algorithm`."""

    def __init__(self, algorithm: OffPolicyAlgorithm) -> None:
        self._algorithm = algorithm
        self.policy_payload = algorithm.policy_payload
        self.samples = algorithm.samples
        self.state = algorithm.state
        self.load_state = algorithm.load_state
        self.begin_from = algorithm.begin_from

    @property
    def network(self) -> ActorCritic | None:
        """The present policy and value function, if detectors are shown one."""
        return self._algorithm.network

    @property
    def replay(self) -> Replay | None:
        """The algorithm's, if it has one."""
        return self._algorithm.replay

    def update(self, trajectories: Sequence[Trajectory]) -> PolicyUpdate:
        """Improve the policy with one round of trajectories, in whatever order they arrived.

        Stats are what the updates with the round's batches come to, see `UpdateTally`.

        Raises:
            ValueError: The trajectories do not make a round.
            FloatingPointError: Gradient steps stopped being finite.
        """
        ordered = in_actor_order(trajectories)
        self._algorithm.add(ordered)
        self._algorithm.flush()
        tally = UpdateTally()
        while self._algorithm.ready:
            tally.add(self._algorithm.update())
        self._algorithm.advance(ordered[0].policy_version + 1)
        return PolicyUpdate(stats=tally.take())
