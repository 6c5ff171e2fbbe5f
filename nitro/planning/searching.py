"""Measuring a search on this machine: whole episodes of perturbed policies, and its update."""

import time

import numpy as np
import torch

from functions.actor.errors import RolloutError
from functions.actor.search import search_episodes
from learning.algorithms.algorithm import learn_round
from learning.algorithms.registry import build_algorithm
from nitro.errors import EXIT_FAILED, CommandError
from nitro.planning.measuring import CHECKPOINT_S, REQUEST_S, queued
from nitro.planning.workload import Workload
from shared.contracts.going_on import longest_episode
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.contracts.rollouts import RolloutTask, SearchTask
from shared.environments.building import Env, make_environment
from shared.environments.spaces import UnsupportedEnvironment
from shared.hyperparameters.search import SearchHyperparameters
from shared.policy.numpy_policy import NumpyPolicy, load_policy
from shared.trajectory import codec
from shared.trajectory.episode_sums import EpisodeSums, encode_sums
from shared.trajectory.rollout_tasks import search_task

_PLAYING_S = 3.0
_REPEATS = 3


def measure_search(spec: JobSpec, *, total_steps: int, episode_steps: int | None) -> Workload:
    """Measure a search here, in a few seconds.

    Args:
        spec: The job.
        total_steps: Its environment steps.
        episode_steps: Steps of an episode, on average; None: as many as it may have.

    Raises:
        CommandError: Its environment has no limit of steps, cannot be built, or fails.
    """
    job = queued(spec)
    limit = longest_episode(job.spec, job.described_environment)
    if limit is None:
        raise CommandError(
            f"episodes.horizon: the episodes of {spec.env_id} have no limit: give a number of steps"
        )
    search, rule = search_task(job), job.hyperparameters
    assert search is not None, "it is a search"
    assert isinstance(rule, SearchHyperparameters), "nothing else searches"
    arrays, metadata = build_algorithm(job, device=torch.device("cpu")).policy_payload()
    payload = codec.encode(arrays, metadata)
    began = time.perf_counter()
    policy = load_policy(arrays, metadata)
    loading_s = time.perf_counter() - began
    try:
        env = make_environment(spec.environment_ref)
        try:
            step_s, computing, reset_s, sums = _played(job, search, env, policy)
        finally:
            env.close()
    except (UnsupportedEnvironment, RolloutError) as error:
        raise CommandError(f"{spec.env_id}: {error}", exit_code=EXIT_FAILED) from error
    steps, update_s = min(episode_steps or limit, limit), _update_s(job, search, sums)
    num_iterations = rule.most_iterations
    num_episodes = num_iterations * rule.num_episodes
    return Workload(
        env_id=spec.env_id,
        images=False,
        total_steps=total_steps,
        samples_per_round=num_episodes * steps,
        episodes_per_round=num_episodes,
        iterations=num_iterations,
        evaluate_every=spec.evaluation.every_rounds,
        evaluation_episodes=spec.evaluation.episodes,
        episode_steps=steps,
        step_s=step_s,
        computing=computing,
        reset_s=reset_s,
        call_s=loading_s + REQUEST_S,
        between_s=update_s + loading_s,
        update_s=update_s + CHECKPOINT_S,
        gpu_update_s=update_s + CHECKPOINT_S,
        bytes_per_sample=len(encode_sums(sums)) / steps,
        # New weights may all be zeros. Trained ones are not, and cannot be compressed.
        policy_bytes=float(max(len(payload), sum(array.nbytes for array in arrays.values()))),
    )


def _played(
    job: Job, search: SearchTask, env: Env, policy: NumpyPolicy
) -> tuple[float, float, float, EpisodeSums]:
    """Play for a few seconds; return a step's time and CPU share, a reset's time, and an answer."""
    one = search.model_copy(update={"parts": 2 * search.directions})
    resets_s = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        env.reset(seed=job.spec.seed)
        resets_s.append(time.perf_counter() - began)
    task = RolloutTask(
        mode="sample",
        job_id=job.job_id,
        round=0,
        attempt=0,
        actor_index=0,
        policy_version=0,
        env=job.spec.environment_ref,
        steps=1,
        search=one,
        seed=0,
    )
    reset_s, num_steps, index = min(resets_s), 0, 0
    began, computed = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < _PLAYING_S:
        sums = search_episodes(task, one, index, env, policy)
        num_steps, index = num_steps + sums.num_steps, index + 1
    took_s = time.perf_counter() - began
    computing = (time.process_time() - computed) / took_s
    return max(1e-9, (took_s - index * reset_s) / num_steps), computing, reset_s, sums


def _update_s(job: Job, search: SearchTask, sums: EpisodeSums) -> float:
    """Return the seconds of an update with as many answers as an iteration has episodes."""
    algorithm = build_algorithm(job, device=torch.device("cpu"))
    num = 2 * search.directions
    returns = np.random.default_rng(0).standard_normal(num)
    answers = [
        sums.replaced(actor_index=i, episode=np.array([i]), episode_returns=returns[[i]])
        for i in range(num)
    ]
    took_s = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        learn_round(algorithm, answers)
        took_s.append(time.perf_counter() - began)
    return min(took_s)
