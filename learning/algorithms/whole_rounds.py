"""Off-policy algorithms in synchronous rounds: one round collected, learned from, published.

A round's trajectories become batches, in order of their actors; what does not fill one makes a
smaller one. Then the algorithm has all the time it wants, so it goes on until no batch is left to
use: IMPALA uses each once, IMPACT up to K times, in passes over all of them. A round of more than N
batches puts the oldest out of IMPACT's buffer after their first use.
"""

from collections.abc import Sequence

from learning.algorithms.algorithm import OffPolicyAlgorithm
from learning.algorithms.policy_update import PolicyUpdate, StateArrays, StateScalars, UpdateTally
from learning.data.fragments import in_actor_order
from learning.detectors.detector import PolicySamples
from learning.networks.actor_critic import ActorCritic
from learning.networks.building import PolicyPayload
from shared.trajectory.trajectory import Trajectory


class WholeRounds:
    """An off-policy learner as an `Algorithm`."""

    def __init__(self, algorithm: OffPolicyAlgorithm) -> None:
        self._algorithm = algorithm

    @property
    def network(self) -> ActorCritic:
        """The present policy and value function."""
        return self._algorithm.network

    def policy_payload(self) -> PolicyPayload:
        """Return the present policy as the actors load it."""
        return self._algorithm.policy_payload()

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

    def samples(self) -> PolicySamples | None:
        """Return the last round's samples; None where nothing was updated yet."""
        return self._algorithm.samples()

    def state(self) -> tuple[StateArrays, StateScalars]:
        """Return a copy of everything needed to resume exactly: arrays, and JSON scalars."""
        return self._algorithm.state()

    def load_state(self, arrays: StateArrays, scalars: StateScalars) -> None:
        """Continue from what `state` returned."""
        self._algorithm.load_state(arrays, scalars)
