"""An actor: fetches a policy, rolls it out, stores the result.

It lives as long as its process and reuses expensive objects: the environments, the decoded policy,
the connection. Results do not depend on them: environments are reset with the task's seed, and a
policy is used only for its own job and version.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from functions.actor.rollout import evaluate_episode, sample_fragment
from functions.actor.search import search_episodes
from functions.actor.warm import WarmEnv, WarmEnvironments
from functions.actor.watchdog import Watchdog
from shared.cache.client import TrajectoryCache
from shared.contracts.rollouts import MAX_POLICY_BYTES, ActorReport, RolloutTask
from shared.environments.state.replay import Standing
from shared.policy.head import PolicyError
from shared.policy.numpy_policy import NumpyPolicy, load_policy
from shared.trajectory import codec
from shared.trajectory.episode_sums import encode_sums
from shared.trajectory.trajectory import Trajectory, encode_episode, encode_trajectory


class PolicyUnavailableError(RuntimeError):
    """The policy version of a task is not in the cache, or is damaged."""


class PolicyGoneError(PolicyUnavailableError):
    """The cache does not have the policy; the learner republishes it before the next launch."""


class StartsGoneError(RuntimeError):
    """The cache does not have the task's snapshots; the learner republishes them likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """A rollout ready to be stored."""

    payload: bytes = b""
    steps: int = 0
    episode_returns: tuple[float, ...] = ()
    episode_lengths: tuple[int, ...] = ()
    dropped_episodes: int = 0


class Actor:
    """Runs rollout tasks in sequence."""

    def __init__(
        self,
        cache: TrajectoryCache,
        *,
        watchdog: Watchdog | None = None,
        kept_environments: int = 1,
    ) -> None:
        self._cache = cache
        self._watchdog = watchdog
        self._policy: tuple[tuple[str, str, int], NumpyPolicy] | None = None
        """The warm policy, and its job, lease_hash and version."""
        self._warm = WarmEnvironments(most=kept_environments, watchdog=watchdog)

    def run(self, task: RolloutTask, *, cold_start: bool) -> ActorReport:
        """Run the task and store its result; do nothing if the job was cancelled.

        Args:
            task: The task.
            cold_start: Whether this process was started for this call; only reported.

        Raises:
            PolicyUnavailableError: The task's policy version is not in the cache or damaged.
            StartsGoneError: Its snapshots are not in the cache.
            CacheError: The cache cannot be reached.
            UnsupportedEnvironment: The environment cannot be built.
            RolloutError: The environment or the policy failed.
        """
        started = time.perf_counter()
        result, fetch_s, rollout_s, push_s = _Result(), 0.0, 0.0, 0.0
        outcome: Literal["stored", "duplicate", "late", "cancelled"] = "cancelled"
        if not self._cache.is_cancelled(task.job_id, task.lease_hash):
            policy = self._fetched_policy(task)
            starts = self._fetched_starts(task)
            envs = self._warm.take(task, starts)
            rollout_started = time.perf_counter()
            fetch_s = rollout_started - started
            try:
                result = _roll_out(task, envs, policy, starts, self._watchdog)
            except BaseException:
                self.close()  # they may be permanently broken
                raise
            rolled_out = time.perf_counter()
            rollout_s = rolled_out - rollout_started
            outcome = self._cache.store_result(
                task.job_id,
                task.round,
                mode=task.mode,
                actor_index=task.actor_index,
                payload=result.payload,
            )
            push_s = time.perf_counter() - rolled_out
        return ActorReport(
            job_id=task.job_id,
            round=task.round,
            actor_index=task.actor_index,
            mode=task.mode,
            outcome=outcome,
            steps=result.steps,
            episode_returns=result.episode_returns,
            episode_lengths=result.episode_lengths,
            dropped_episodes=result.dropped_episodes,
            fetch_s=fetch_s,
            rollout_s=rollout_s,
            push_s=push_s,
            total_s=time.perf_counter() - started,
            cold_start=cold_start,
            payload_bytes=len(result.payload),
        )

    def _fetched_policy(self, task: RolloutTask) -> NumpyPolicy:
        key = (task.job_id, task.lease_hash, task.policy_version)
        if self._policy is not None and self._policy[0] == key:
            return self._policy[1]
        name = f"policy version {task.policy_version} of job {task.job_id}"
        payload = self._cache.fetch_policy(task.job_id, task.policy_version)
        if payload is None:
            raise PolicyGoneError(
                f"{name} is not in the cache: it was deleted, has expired or was never published"
            )
        try:
            decoded = codec.decode(payload, max_bytes=MAX_POLICY_BYTES)
            policy = load_policy(decoded.arrays, decoded.metadata)
        except (codec.CodecError, PolicyError) as error:
            raise PolicyUnavailableError(f"{name} cannot be used: {error}") from error
        self._policy = (key, policy)
        return policy

    def _fetched_starts(self, task: RolloutTask) -> Sequence[bytes]:
        if not task.continues:
            return ()
        first = task.actor_index * task.num_envs
        places = range(first, first + task.num_envs)
        starts = self._cache.fetch_starts(task.job_id, task.round, places)
        if starts is None:
            raise StartsGoneError(
                f"where the episodes of job {task.job_id} were left before round {task.round} is "
                "not in the cache: that round is over, it has expired, or it was never published"
            )
        return starts

    def close(self) -> None:
        """Close the environments; the cache client is the caller's."""
        self._warm.close()


def _roll_out(
    task: RolloutTask,
    envs: Sequence[WarmEnv],
    policy: NumpyPolicy,
    starts: Sequence[bytes],
    watchdog: Watchdog | None,
) -> _Result:
    standing = [each.standing for each in envs]
    for each in envs:
        each.standing = None
    if task.mode == "evaluate":
        episode = evaluate_episode(task, envs[0].env, policy, watchdog=watchdog)
        return _Result(
            payload=encode_episode(episode),
            steps=episode.length,
            episode_returns=(episode.episode_return,),
            episode_lengths=(episode.length,),
            dropped_episodes=episode.dropped_episodes,
        )
    if task.search is not None:
        sums = search_episodes(task, task.search, envs[0].env, policy, watchdog=watchdog)
        return _result(sums, encode_sums(sums))
    trajectory = sample_fragment(
        task,
        [agent for each in envs for agent in each.agents],
        policy,
        starts=starts,
        standing=standing,
        watchdog=watchdog,
    )
    if task.replay_steps:
        for b, (each, place) in enumerate(zip(envs, trajectory.snapshots, strict=True)):
            if place:
                observation = trajectory.observation[-1, b].copy()
                each.standing = Standing(place=place, observation=observation)
    return _result(trajectory, encode_trajectory(trajectory))


def _result(trajectory: Trajectory, payload: bytes) -> _Result:
    return _Result(
        payload=payload,
        steps=trajectory.num_steps,
        episode_returns=tuple(trajectory.episode_returns.tolist()),
        episode_lengths=tuple(trajectory.episode_lengths.tolist()),
        dropped_episodes=trajectory.dropped_episodes,
    )
