"""Reads actors' trajectories and episodes, and checks them against their tasks."""

import logging

from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.rollouts import SearchTask
from shared.contracts.rounds import RoundPlan
from shared.trajectory.episode_sums import GIVEN_UP, EpisodeSums, decode_sums, failure_in
from shared.trajectory.trajectory import (
    Episode,
    Trajectory,
    TrajectoryError,
    decode_episode,
    decode_trajectory,
)

_LOG = logging.getLogger(__name__)


class EnvironmentFailedError(RuntimeError):
    """A result says that the environment failed in its place."""


class GivenUpError(RuntimeError):
    """The learner has closed the iteration without this part."""


def read_trajectory(
    payload: bytes,
    plan: RoundPlan,
    index: int,
    *,
    environment: EnvironmentSpec,
    size: tuple[int, int],
    state_size: int = 0,
) -> Trajectory:
    """Return an actor's trajectory with this size (steps, environments) and recurrent state.

    Raises:
        CodecError: The bytes are not Nitro's arrays.
        TrajectoryError: They are not a trajectory, or not the requested one.
    """
    trajectory = decode_trajectory(payload, environment=environment, state_size=state_size)
    _check_identity(trajectory, plan, index, plan.policy_version)
    got = (trajectory.num_steps, trajectory.num_envs)
    if got != size:
        raise TrajectoryError(f"(steps, environments) is {got}, expected {size}")
    _warn_of_dropped(trajectory)
    return trajectory


def read_part(
    payload: bytes,
    plan: RoundPlan,
    number: int,
    *,
    environment: EnvironmentSpec,
    search: SearchTask,
) -> EpisodeSums:
    """Return a part of a search's round; raises like `read_trajectory`, too.

    Raises:
        EnvironmentFailedError: The environment failed in the part.
        GivenUpError: The iteration was closed without it.
    """
    if payload == GIVEN_UP:
        raise GivenUpError
    why = failure_in(payload)
    if why is not None:
        raise EnvironmentFailedError(why)
    iteration, part = divmod(number, search.parts)
    sums = decode_sums(
        payload,
        environment=environment,
        episodes=search.episodes(part),
        longest=search.longest,
        moments=search.moments,
    )
    _check_identity(sums, plan, number, plan.policy_version + iteration)
    _warn_of_dropped(sums)
    return sums


def read_episode(payload: bytes, plan: RoundPlan, index: int) -> Episode:
    """Return an evaluation episode; raises like `read_trajectory`."""
    episode = decode_episode(payload)
    _check_identity(episode, plan, index, plan.policy_version)
    return episode


def _warn_of_dropped(trajectory: Trajectory) -> None:
    if trajectory.dropped_episodes:
        _LOG.warning(
            "an actor dropped episodes with a non-finite number",
            extra={
                "job": trajectory.job_id,
                "round": trajectory.round,
                "actor": trajectory.actor_index,
                "episodes": trajectory.dropped_episodes,
            },
        )


def _check_identity(
    result: Trajectory | Episode, plan: RoundPlan, index: int, version: int
) -> None:
    identity = (result.job_id, result.round, result.actor_index, result.policy_version)
    expected = (plan.job_id, plan.round, index, version)
    if identity != expected:
        raise TrajectoryError(
            f"(job, round, actor, policy version) is {identity}, expected {expected}"
        )
