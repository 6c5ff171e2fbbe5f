"""Actors that only answer a search, in threads of one process: for measuring many of them.

    python -m benchmarks.actors.answering_actor CACHE_URL TASK FIRST NUMBER

Each has a connection of its own, takes parts like an actor, fetches each iteration's policy, and
stores sums as large as those of Humanoid's episodes, which nobody played. The process ends when the
round's queue is closed.
"""

import sys
import threading
from collections.abc import Sequence

import numpy as np
from numpy.random import default_rng  # here: NumPy cannot import it in several threads at once

from benchmarks.actors.trajectory import HUMANOID
from shared.cache.client import TrajectoryCache
from shared.cache.search_queue import QueueClosedError
from shared.contracts.rollouts import RolloutTask, SearchTask
from shared.trajectory.episode_sums import EpisodeSums, encode_sums

_STEPS = 1000
_NUM_OBSERVED = HUMANOID.observation.shape[0]
_WAIT_S = 2.0


def main(arguments: Sequence[str]) -> None:
    """Answer as so many actors until the queue is closed."""
    url, text, first, number = arguments
    task = RolloutTask.model_validate_json(text)
    assert task.search is not None, "only searches are answered"
    threads = [
        threading.Thread(target=_answer, args=(url, task, task.search, int(first) + i))
        for i in range(int(number))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _answer(url: str, task: RolloutTask, search: SearchTask, actor_index: int) -> None:
    version, place = -1, (task.job_id, task.round)
    with TrajectoryCache(url) as cache:
        while True:
            try:
                part = cache.take_part(*place, actor_index=actor_index, timeout_s=_WAIT_S)
            except QueueClosedError:
                return
            if part is None:
                continue
            iteration = task.policy_version + part.number // search.parts
            if iteration != version:
                cache.fetch_policy(task.job_id, iteration)
                version = iteration
            payload = _sums(task, search, part.number, version)
            cache.store_result(*place, mode="search", actor_index=part.number, payload=payload)
            cache.finish_part(*place, part)


def _sums(task: RolloutTask, search: SearchTask, number: int, version: int) -> bytes:
    rng = default_rng(number)
    episodes = np.array(search.episodes(number % search.parts))
    return encode_sums(
        EpisodeSums(
            job_id=task.job_id,
            round=task.round,
            actor_index=number,
            policy_version=version,
            episode=episodes,
            episode_returns=rng.standard_normal(len(episodes)),
            episode_lengths=np.full(len(episodes), _STEPS, np.int32),
            observation_mean=rng.standard_normal((len(episodes), _NUM_OBSERVED)),
            observation_m2=rng.random((len(episodes), _NUM_OBSERVED)) * _STEPS,
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
