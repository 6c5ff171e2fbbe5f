"""The tasks of a round's actors, identical for functions and for the learner's own cores."""

import math
from collections.abc import Iterable, Iterator
from typing import Literal

from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.going_on import longest_episode
from shared.contracts.jobs import Job
from shared.contracts.leases import hash_of_lease
from shared.contracts.rollouts import RolloutTask, SearchTask
from shared.contracts.rounds import RoundPlan
from shared.hyperparameters.common import GradientHyperparameters
from shared.hyperparameters.search import SearchHyperparameters
from shared.trajectory.seeds import actor_seed

_Wanted = list[tuple[Literal["sample", "evaluate"], int]]
_PARTS_PER_ACTOR = 4
"""Parts of an iteration, for each actor: episodes differ in length, but each part costs a message.
"""
_MOST_EPISODES = 16
"""Most episodes of a part, so that its result is small."""


def rollout_tasks(
    job: Job,
    plan: RoundPlan,
    *,
    lease_id: str,
    samples: Iterable[int],
    evaluations: Iterable[int],
) -> Iterator[RolloutTask]:
    """Yield the tasks of some of a round's actors and evaluation episodes, rollouts first.

    In a search episodes come first: its rollouts last as long as the round, whose first update may
    wait for episodes.

    Thousands of tasks take a tenth of a second; a caller that must not block takes a few at a time.

    Args:
        job: The job, as in the learner's lease.
        plan: The round.
        lease_id: Lease under which the round was planned.
        samples: Indices of actors.
        evaluations: Indices of evaluation episodes.
    """
    env = job.spec.environment_ref  # built once, because building it validates it
    lease_hash = hash_of_lease(lease_id)
    rollouts: _Wanted = [("sample", index) for index in samples]
    episodes: _Wanted = [("evaluate", index) for index in evaluations]
    for mode, index in episodes + rollouts if job.spec.searches else rollouts + episodes:
        yield _task(job, plan, mode, index, env, lease_hash)


def _task(
    job: Job,
    plan: RoundPlan,
    mode: Literal["sample", "evaluate"],
    actor_index: int,
    env: EnvironmentRef,
    lease_hash: str,
) -> RolloutTask:
    spec, samples, rule = job.spec, mode == "sample", job.hyperparameters
    return RolloutTask(
        mode=mode,
        job_id=plan.job_id,
        round=plan.round,
        attempt=plan.attempt,
        actor_index=actor_index,
        policy_version=plan.policy_version,
        lease_hash=lease_hash,
        env=env,
        steps=spec.steps_of(plan.num_actors),
        num_envs=spec.envs_per_actor if samples else 1,
        continues=samples and job.continues_episodes,
        replay_steps=job.replay_steps if samples else 0,
        rebuild=job.described_environment.repeats == "rebuilt",
        horizon=spec.episodes.cut_at if samples else None,
        discount=rule.discount if isinstance(rule, GradientHyperparameters) else 1.0,
        search=search_task(job) if samples else None,
        seed=actor_seed(spec.seed, mode=mode, round_index=plan.round, actor_index=actor_index),
    )


def search_task(job: Job) -> SearchTask | None:
    """Return the search of a job's rounds; None if its actors sample."""
    rule = job.hyperparameters
    if not isinstance(rule, SearchHyperparameters):
        return None
    longest = longest_episode(job.spec, job.described_environment)
    assert longest is not None, "admission refuses a search without a limit"
    fewest = math.ceil(rule.num_episodes / _MOST_EPISODES)
    return SearchTask(
        seed=job.spec.seed,
        directions=rule.directions,
        parts=min(rule.num_episodes, max(_PARTS_PER_ACTOR * job.spec.actors.max, fewest)),
        exploration_std=rule.exploration_std,
        longest=longest,
        moments=rule.observation_normalisation,
    )
