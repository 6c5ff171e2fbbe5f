"""The actor's own rollout code with a freshly initialised policy, as the benchmarks' subject."""

from collections.abc import Sequence

from functions.actor.rollout import sample_fragment
from learning.networks.building import build_network, policy_payload
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.rollouts import RolloutTask
from shared.environments.building import make_environment
from shared.environments.describing import describe
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.policy.numpy_policy import load_policy
from shared.trajectory.seeds import actor_seed
from shared.trajectory.trajectory import Trajectory

STEPS = 256
"""Of one fragment (section 8.1)."""
JOB_ID = "benchmark"


class RealActor:
    """Samples fragments like an actor that is warm: environment and weights are loaded."""

    def __init__(self, env_id: str) -> None:
        self._ref = EnvironmentRef(env_id=env_id)
        self.environment = describe(self._ref)
        self.env = make_environment(self._ref)
        self.network = build_network(self.environment, PpoHyperparameters(), seed=0)
        self.policy = load_policy(*policy_payload(self.network))

    def task(self, actor_index: int, *, round_index: int = 0) -> RolloutTask:
        """Return the task of one actor."""
        return RolloutTask(
            mode="sample",
            job_id=JOB_ID,
            round=round_index,
            attempt=0,
            actor_index=actor_index,
            policy_version=0,
            env=self._ref,
            steps=STEPS,
            seed=actor_seed(0, mode="sample", round_index=round_index, actor_index=actor_index),
        )

    def fragment(self, actor_index: int) -> Trajectory:
        """Roll out one fragment; the same index gives the same fragment."""
        return self.roll_out(self.task(actor_index))

    def roll_out(self, task: RolloutTask) -> Trajectory:
        """Do a task."""
        return sample_fragment(task, [self.env], self.policy)

    def fragments(self, count: int) -> Sequence[Trajectory]:
        """Roll out the fragments of actors 0 to `count` - 1."""
        return [self.fragment(index) for index in range(count)]
