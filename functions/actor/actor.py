"""An actor: fetches a policy, rolls it out, stores the result. A search's does so again and again.

It lives as long as its process and reuses expensive objects: the environments, the decoded policy,
the connection. Results do not depend on them: environments are reset with the task's seed, and a
policy is used only for its own job and version.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from functions.actor.errors import RolloutError
from functions.actor.rollout import evaluate_episode, sample_fragment
from functions.actor.search import search_episodes
from functions.actor.warm import WarmEnv, WarmEnvironments
from functions.actor.watchdog import Watchdog
from shared.cache.client import TrajectoryCache
from shared.cache.search_queue import QueueClosedError, TakenPart
from shared.contracts.rollouts import MAX_POLICY_BYTES, ActorReport, RolloutTask, SearchTask
from shared.environments.state.replay import Standing
from shared.policy.head import PolicyError
from shared.policy.numpy_policy import NumpyPolicy, load_policy
from shared.trajectory import codec
from shared.trajectory.episode_sums import encode_failure, encode_sums
from shared.trajectory.trajectory import Trajectory, encode_episode, encode_trajectory

_LOOK_S = 2.0
"""One wait for a search's next part; between two waits the actor checks whether to end."""
_IDLE_S = 20.0
"""Longest time without a part: the learner has ended, and the next one launches actors again."""
_SLOW = 2.0
"""A part is taken over after this many times as long as one takes whose episodes are the longest.
Also after this many times as long as a step may take: a hang is announced before, and does not end
one actor after another.
"""
_UNMEASURED_S = 300.0
"""An actor that has played none, and so cannot know how long parts take, takes one over after this.
"""


class PolicyUnavailableError(RuntimeError):
    """The policy version of a task is not in the cache, or is damaged."""


class PolicyGoneError(PolicyUnavailableError):
    """The cache does not have the policy; the learner republishes it before the next launch."""


class StartsGoneError(RuntimeError):
    """The cache does not have the task's snapshots; the learner republishes them likewise."""


@dataclass(slots=True, kw_only=True)
class _Work:
    """The outcome of a task, and its times."""

    outcome: Literal["stored", "duplicate", "late", "cancelled"] = "cancelled"
    payload_bytes: int = 0
    steps: int = 0
    episode_returns: list[float] = field(default_factory=list)
    episode_lengths: list[int] = field(default_factory=list)
    dropped_episodes: int = 0
    fetch_s: float = 0.0
    rollout_s: float = 0.0
    push_s: float = 0.0

    def add(self, result: Trajectory) -> None:
        """Count a result's steps and episodes."""
        self.steps += result.num_steps
        self.episode_returns += result.episode_returns.tolist()
        self.episode_lengths += result.episode_lengths.tolist()
        self.dropped_episodes += result.dropped_episodes


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
        work = _Work()
        if not self._cache.is_cancelled(task.job_id, task.lease_hash):
            try:
                if task.search is None:
                    self._roll_out(task, work)
                else:
                    self._search(task, task.search, work)
            except BaseException:
                self.close()  # its environments may be permanently broken
                raise
        return ActorReport(
            job_id=task.job_id,
            round=task.round,
            actor_index=task.actor_index,
            mode=task.mode,
            outcome=work.outcome,
            steps=work.steps,
            episode_returns=tuple(work.episode_returns),
            episode_lengths=tuple(work.episode_lengths),
            dropped_episodes=work.dropped_episodes,
            fetch_s=work.fetch_s,
            rollout_s=work.rollout_s,
            push_s=work.push_s,
            total_s=time.perf_counter() - started,
            cold_start=cold_start,
            payload_bytes=work.payload_bytes,
        )

    def _roll_out(self, task: RolloutTask, work: _Work) -> None:
        """Roll out a fragment or an evaluation episode, and store it."""
        began = time.perf_counter()
        policy = self._fetched_policy(task, task.policy_version)
        starts = self._fetched_starts(task)
        envs = self._warm.take(task, starts)
        fetched = time.perf_counter()
        payload = _rolled_out(task, envs, policy, starts, self._watchdog, work)
        rolled_out = time.perf_counter()
        work.outcome = self._cache.store_result(
            task.job_id,
            task.round,
            mode=task.mode,
            actor_index=task.actor_index,
            payload=payload,
        )
        work.payload_bytes = len(payload)
        work.fetch_s, work.rollout_s = fetched - began, rolled_out - fetched
        work.push_s = time.perf_counter() - rolled_out

    def _search(self, task: RolloutTask, search: SearchTask, work: _Work) -> None:
        """Play parts of a search's iterations until its round is over.

        The outcome stays `cancelled` if no part came for long.
        """
        try:
            for part in self._parts(task, search, work):
                began = time.perf_counter()
                version = task.policy_version + part.number // search.parts
                try:
                    policy = self._fetched_policy(task, version)
                except PolicyGoneError:
                    if not self._is_played(task, part):
                        raise
                    # Its iteration is over: another actor stored the part, and died.
                    self._cache.finish_part(task.job_id, task.round, part)
                    continue
                (warm,) = self._warm.take(task, ())
                warm.standing = None
                fetched = time.perf_counter()
                try:
                    sums = search_episodes(
                        task, search, part.number, warm.env, policy, watchdog=self._watchdog
                    )
                    work.add(sums)
                    payload = encode_sums(sums)
                except RolloutError as error:
                    self.close()  # the environment may be permanently broken
                    payload = encode_failure(str(error))
                played = time.perf_counter()
                self._cache.store_result(
                    task.job_id,
                    task.round,
                    mode="search",
                    actor_index=part.number,
                    payload=payload,
                )
                self._cache.finish_part(task.job_id, task.round, part)
                work.payload_bytes += len(payload)
                work.fetch_s += fetched - began
                work.rollout_s += played - fetched
                work.push_s += time.perf_counter() - played
        except QueueClosedError:
            work.outcome = "stored"

    def _is_played(self, task: RolloutTask, part: TakenPart) -> bool:
        (stored,) = self._cache.load_results(
            task.job_id, task.round, mode="search", actor_indices=[part.number]
        )
        return stored is not None

    def _parts(self, task: RolloutTask, search: SearchTask, work: _Work) -> Iterator[TakenPart]:
        """Yield parts until none comes for long, or the job is cancelled.

        Raises:
            QueueClosedError: The round is over.
        """
        heard_at, timeout_s = time.monotonic(), 0.0
        while time.monotonic() - heard_at < _IDLE_S:
            part = self._cache.take_part(
                task.job_id, task.round, actor_index=task.actor_index, timeout_s=timeout_s
            )
            if part is None and timeout_s:
                part = self._cache.take_over_part(
                    task.job_id,
                    task.round,
                    actor_index=task.actor_index,
                    after_s=self._overdue_s(search, work),
                )
            if part is not None:
                yield part
                heard_at, timeout_s = time.monotonic(), _LOOK_S
            elif timeout_s and self._cache.is_cancelled(task.job_id, task.lease_hash):
                return
            else:
                if self._cache.has_unfinished(task.job_id, task.round):
                    heard_at = time.monotonic()  # others play: the next iteration comes after them
                # In turn: parts for anybody, and one whose delivery to this actor was lost.
                timeout_s = 0.0 if timeout_s else _LOOK_S

    def _overdue_s(self, search: SearchTask, work: _Work) -> float:
        """Return how long another actor may have a part before this one takes it over."""
        if not work.steps:
            return _UNMEASURED_S
        steps = search.longest * len(search.episodes(0))
        step_timeout_s = self._watchdog.timeout_s if self._watchdog else 0.0
        return max(_IDLE_S, _SLOW * max(step_timeout_s, steps * work.rollout_s / work.steps))

    def _fetched_policy(self, task: RolloutTask, version: int) -> NumpyPolicy:
        key = (task.job_id, task.lease_hash, version)
        if self._policy is not None and self._policy[0] == key:
            return self._policy[1]
        name = f"policy version {version} of job {task.job_id}"
        payload = self._cache.fetch_policy(task.job_id, version)
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


def _rolled_out(
    task: RolloutTask,
    envs: Sequence[WarmEnv],
    policy: NumpyPolicy,
    starts: Sequence[bytes],
    watchdog: Watchdog | None,
    work: _Work,
) -> bytes:
    """Roll out; count the work, and return the result's bytes."""
    standing = [each.standing for each in envs]
    for each in envs:
        each.standing = None
    if task.mode == "evaluate":
        episode = evaluate_episode(task, envs[0].env, policy, watchdog=watchdog)
        work.steps = episode.length
        work.episode_returns = [episode.episode_return]
        work.episode_lengths = [episode.length]
        work.dropped_episodes = episode.dropped_episodes
        return encode_episode(episode)
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
    work.add(trajectory)
    return encode_trajectory(trajectory)
