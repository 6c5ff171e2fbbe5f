"""A trajectory nobody rolled out, as large as the real actor's on Hopper."""

import numpy as np

from shared.cache.first_wins import StoreOutcome
from shared.contracts.environment_spec import ContinuousActionSpec, EnvironmentSpec, ObservationSpec
from shared.contracts.rollouts import ActorReport, RolloutTask
from shared.trajectory.trajectory import Trajectory

STEPS = 256
ENVIRONMENT = EnvironmentSpec(
    env_id="Hopper-v5",
    observation=ObservationSpec(shape=(11,), dtype="float32"),
    action=ContinuousActionSpec(low=(-1.0,) * 3, high=(1.0,) * 3),
    max_episode_steps=1000,
    versions={},
)

HUMANOID = EnvironmentSpec(
    env_id="Humanoid-v5",
    observation=ObservationSpec(shape=(348,), dtype="float32"),
    action=ContinuousActionSpec(low=(-0.4,) * 17, high=(0.4,) * 17),
    max_episode_steps=1000,
    versions={},
)


def report(
    task: RolloutTask, outcome: StoreOutcome, *, payload_bytes: int, total_s: float = 0.0
) -> dict[str, object]:
    """Return the report of an actor that rolled nothing out."""
    return ActorReport(
        job_id=task.job_id,
        round=task.round,
        actor_index=task.actor_index,
        mode=task.mode,
        outcome=outcome,
        steps=task.steps,
        episode_returns=(),
        episode_lengths=(),
        rollout_s=0.0,
        total_s=total_s,
        cold_start=False,
        payload_bytes=payload_bytes,
    ).model_dump(mode="json")


def made_up_trajectory() -> Trajectory:
    """Return a trajectory of noise without the end of an episode."""
    rng = np.random.default_rng(0)

    def noise(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return rng.standard_normal(shape, np.float32)

    return Trajectory(
        job_id="made-up",
        round=0,
        actor_index=0,
        policy_version=0,
        observation=noise(STEPS + 1, 1, 11),
        final_observation=np.empty((0, 11), np.float32),
        action=noise(STEPS, 1, 3),
        reward=noise(STEPS, 1),
        terminated=np.zeros((STEPS, 1), np.bool_),
        truncated=np.zeros((STEPS, 1), np.bool_),
        log_prob=noise(STEPS, 1),
        episode_returns=np.empty(0, np.float32),
        episode_lengths=np.empty(0, np.int32),
    )
