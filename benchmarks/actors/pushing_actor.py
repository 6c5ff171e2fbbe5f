"""An actor that only pushes a trajectory: a Lambda handler for measuring rounds of many actors.

Its trajectories are as large as the real actor's on Hopper and pass every check of the learner's,
but nothing was simulated for them.
"""

import time

from benchmarks.actors.trajectory import ENVIRONMENT, made_up_trajectory, report
from functions.actor.settings import Settings
from shared.cache.client import TrajectoryCache
from shared.contracts.rollouts import ACTOR_TASK, RolloutTask
from shared.trajectory.trajectory import encode_trajectory

_cache = TrajectoryCache(Settings().cache_url.get_secret_value())
_trajectory = made_up_trajectory()


def handler(event: object, context: object) -> dict[str, object]:
    """Push a trajectory with the task's identity."""
    start = time.perf_counter()
    task = ACTOR_TASK.validate_python(event, strict=False)
    if not isinstance(task, RolloutTask):
        return ENVIRONMENT.model_dump(mode="json")
    payload = encode_trajectory(
        _trajectory.replaced(
            job_id=task.job_id,
            round=task.round,
            actor_index=task.actor_index,
            policy_version=task.policy_version,
        )
    )
    outcome = _cache.store_result(
        task.job_id, task.round, mode=task.mode, actor_index=task.actor_index, payload=payload
    )
    total_s = time.perf_counter() - start
    return report(task, outcome, payload_bytes=len(payload), total_s=total_s)
