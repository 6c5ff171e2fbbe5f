"""The Lambda function: one event in, one gradient computed, one report out.

It is the actor's image with another command, and imports neither torch nor an environment.
"""

import itertools
import json

from pydantic import ValidationError

from functions.gradient.learner import LearnerFunction
from functions.lambda_settings import LambdaSettings
from shared.cache.gradients import GradientCache
from shared.contracts.gradients import GradientTask

MAX_EVENT_BYTES = 4096

_settings = LambdaSettings()
_learner = LearnerFunction(
    GradientCache(
        _settings.cache_url.get_secret_value(),
        timeout_s=_settings.cache_timeout_s,
        credentials=_settings.cache_credentials(_settings.aws_credentials),
    )
)
_invocations = itertools.count()


class TaskRefusedError(ValueError):
    """The event is no task of ours; nothing was done."""


def handler(event: object, context: object) -> dict[str, object]:
    """Do the task in the event; return a `GradientReport` as JSON.

    Raises:
        TaskRefusedError: The event is too large or malformed; the message names the fields.
    """
    is_first = next(_invocations) == 0
    task = parse_task(event)
    report = _learner.run(task, cold_start=is_first and _settings.starts_cold)
    return report.model_dump(mode="json")


def parse_task(event: object) -> GradientTask:
    """Return the task that an event holds, or raise `TaskRefusedError`."""
    data = json.dumps(event, separators=(",", ":")).encode()
    if len(data) > MAX_EVENT_BYTES:
        raise TaskRefusedError(f"event of {len(data)} bytes, at most {MAX_EVENT_BYTES} are allowed")
    try:
        return GradientTask.model_validate_json(data)
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, e['loc'])) or 'event'}: {e['msg']}" for e in error.errors())
        raise TaskRefusedError(f"event is no gradient task: {'; '.join(wrong)}") from None
