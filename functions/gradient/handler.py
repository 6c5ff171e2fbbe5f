"""The Lambda function: one event in, one gradient computed, one report out.

It is the actor's image with another command, and imports neither torch nor an environment.
"""

import itertools

from pydantic import TypeAdapter

from functions.events import parse_task
from functions.gradient.learner import LearnerFunction
from functions.lambda_settings import LambdaSettings
from shared.cache.gradients import GradientCache
from shared.contracts.gradients import GradientTask

_settings = LambdaSettings()
_cache = _settings.cache(GradientCache)
_cache.connect()
_learner = LearnerFunction(_cache)
_invocations = itertools.count()
_TASKS = TypeAdapter(GradientTask)


def handler(event: object, context: object) -> dict[str, object]:
    """Do the task in the event; return a `GradientReport` as JSON.

    Raises:
        TaskRefusedError: The event is too large or malformed; the message names the fields.
    """
    cold_start = next(_invocations) == 0 and _settings.starts_cold
    task = parse_task(event, _TASKS, kind="gradient")
    return _learner.run(task, cold_start=cold_start).model_dump(mode="json")
