"""An actor that does no work: a Lambda handler for measuring what surrounds the work.

It answers like the real one and stores a result, so that scaler, emulator and cache do all they do.
"""

from benchmarks.actors.trajectory import ENVIRONMENT, report
from functions.actor.settings import Settings
from shared.cache.client import TrajectoryCache
from shared.contracts.rollouts import ACTOR_TASK, RolloutTask

_cache = TrajectoryCache(Settings().cache_url.get_secret_value())


def handler(event: object, context: object) -> dict[str, object]:
    """Answer a task at once."""
    task = ACTOR_TASK.validate_python(event, strict=False)
    if not isinstance(task, RolloutTask):
        return ENVIRONMENT.model_dump(mode="json")
    outcome = _cache.store_result(
        task.job_id, task.round, mode=task.mode, actor_index=task.actor_index, payload=b"idle"
    )
    return report(task, outcome, payload_bytes=4)
