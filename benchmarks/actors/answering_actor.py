"""An actor that only answers a search: a Lambda handler for measuring iterations of many actors.

It fetches the policy and stores sums as large as those of Humanoid's episodes, which nobody played.
"""

import time

import numpy as np

from benchmarks.actors.stored_answer import CACHE, stored
from benchmarks.actors.trajectory import HUMANOID
from shared.contracts.rollouts import ACTOR_TASK, RolloutTask
from shared.trajectory.episode_sums import EpisodeSums, encode_sums

_STEPS = 1000
_NUM_OBSERVED = HUMANOID.observation.shape[0]


def handler(event: object, context: object) -> dict[str, object]:
    """Store the answer of a task's actor."""
    start = time.perf_counter()
    task = ACTOR_TASK.validate_python(event, strict=False)
    if not isinstance(task, RolloutTask) or task.search is None:
        return HUMANOID.model_dump(mode="json")
    CACHE.fetch_policy(task.job_id, task.policy_version)
    rng = np.random.default_rng(task.seed)
    episodes = np.array(task.search.episodes(task.actor_index))
    payload = encode_sums(
        EpisodeSums(
            job_id=task.job_id,
            round=task.round,
            actor_index=task.actor_index,
            policy_version=task.policy_version,
            episode=episodes,
            episode_returns=rng.standard_normal(len(episodes)),
            episode_lengths=np.full(len(episodes), _STEPS, np.int32),
            observation_mean=rng.standard_normal((len(episodes), _NUM_OBSERVED)),
            observation_m2=rng.random((len(episodes), _NUM_OBSERVED)) * _STEPS,
        )
    )
    return stored(task, payload, steps=_STEPS * len(episodes), start=start)
