"""The end of a made-up actor's call: its result stored, and its report."""

import time

from functions.actor.settings import Settings
from shared.cache.client import TrajectoryCache
from shared.contracts.rollouts import ActorReport, RolloutTask

CACHE = TrajectoryCache(Settings().cache_url.get_secret_value())


def stored(task: RolloutTask, payload: bytes, *, steps: int, start: float) -> dict[str, object]:
    """Store a task's result; return the report of an actor that rolled out nothing.

    Args:
        task: The task.
        payload: Its encoded result.
        steps: Environment steps that it stands for.
        start: `time.perf_counter` at the call.
    """
    outcome = CACHE.store_result(
        task.job_id, task.round, mode=task.mode, actor_index=task.actor_index, payload=payload
    )
    return ActorReport(
        job_id=task.job_id,
        round=task.round,
        actor_index=task.actor_index,
        mode=task.mode,
        outcome=outcome,
        steps=steps,
        episode_returns=(),
        episode_lengths=(),
        rollout_s=0.0,
        total_s=time.perf_counter() - start,
        cold_start=False,
        payload_bytes=len(payload),
    ).model_dump(mode="json")
