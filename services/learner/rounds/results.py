"""Reads actors' trajectories and episodes, and checks them against their tasks."""

import logging

from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.rollouts import SearchTask
from shared.contracts.rounds import RoundPlan
from shared.trajectory.episode_sums import decode_sums
from shared.trajectory.trajectory import (
    Episode,
    Trajectory,
    TrajectoryError,
    decode_episode,
    decode_trajectory,
)

_LOG = logging.getLogger(__name__)


def read_trajectory(
    payload: bytes,
    plan: RoundPlan,
    index: int,
    *,
    environment: EnvironmentSpec,
    size: tuple[int, int],
    state_size: int = 0,
    search: SearchTask | None = None,
) -> Trajectory:
    """Return an actor's trajectory with this size (steps, environments) and recurrent state.

    With `search` it is the actor's part of that search instead.

    Raises:
        CodecError: The bytes are not Nitro's arrays.
        TrajectoryError: They are not a trajectory, or not the requested one.
    """
    if search is not None:
        trajectory: Trajectory = decode_sums(
            payload,
            environment=environment,
            episodes=search.episodes(index),
            longest=search.longest,
            moments=search.moments,
        )
        _check_identity(trajectory, plan, index)
    else:
        trajectory = decode_trajectory(payload, environment=environment, state_size=state_size)
        _check_identity(trajectory, plan, index)
        got = (trajectory.num_steps, trajectory.num_envs)
        if got != size:
            raise TrajectoryError(f"(steps, environments) is {got}, expected {size}")
    if trajectory.dropped_episodes:
        _LOG.warning(
            "an actor dropped episodes with a non-finite number",
            extra={
                "job": plan.job_id,
                "round": plan.round,
                "actor": index,
                "episodes": trajectory.dropped_episodes,
            },
        )
    return trajectory


def read_episode(payload: bytes, plan: RoundPlan, index: int) -> Episode:
    """Return an evaluation episode; raises like `read_trajectory`."""
    episode = decode_episode(payload)
    _check_identity(episode, plan, index)
    return episode


def _check_identity(result: Trajectory | Episode, plan: RoundPlan, index: int) -> None:
    identity = (result.job_id, result.round, result.actor_index, result.policy_version)
    expected = (plan.job_id, plan.round, index, plan.policy_version)
    if identity != expected:
        raise TrajectoryError(
            f"(job, round, actor, policy version) is {identity}, expected {expected}"
        )
