"""The Lambda function: one event in, one rollout done, one report out.

What is built at import is what warm invocations share; the connection opens at the first command.
"""

import itertools
import json
import time
from contextlib import AbstractContextManager

from pydantic import ValidationError

from functions.actor.actor import Actor
from functions.actor.settings import Settings
from functions.actor.watchdog import CONSTRUCTION, STEP, watched
from shared.cache.client import TrajectoryCache
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.rollouts import ACTOR_TASK, ActorTask, DescribeTask, PingReport, PingTask
from shared.environments.building import describe
from shared.environments.packages import import_environment_packages

MAX_EVENT_BYTES = 4096

_settings = Settings()
import_environment_packages(_settings.environment_packages)
_actor = Actor(
    TrajectoryCache(
        _settings.cache_url.get_secret_value(),
        timeout_s=_settings.cache_timeout_s,
        credentials=_settings.cache_credentials(_settings.aws_credentials),
    ),
    step_timeout_s=_settings.step_timeout_s,
)
_invocations = itertools.count()


class TaskRefusedError(ValueError):
    """The event is no task of ours; nothing was done."""


def handler(event: object, context: object) -> dict[str, object]:
    """Do the task in the event; return what it answers to its kind of task, as JSON.

    Raises:
        TaskRefusedError: The event is too large or malformed; the message names the fields.
    """
    is_first = next(_invocations) == 0
    task = parse_task(event)
    if isinstance(task, DescribeTask):
        return _described(task).model_dump(mode="json")
    cold_start = is_first and _settings.starts_cold
    if isinstance(task, PingTask):
        time.sleep(task.hold_s)
        return PingReport(cold_start=cold_start).model_dump(mode="json")
    return _actor.run(task, cold_start=cold_start).model_dump(mode="json")


def _described(task: DescribeTask) -> EnvironmentSpec:
    def watch(awaited: str) -> AbstractContextManager[None]:
        timeout_s = _settings.step_timeout_s
        return watched(task.env.env_id, lambda: None, timeout_s=timeout_s, awaited=awaited)

    return describe(task.env, while_building=watch(CONSTRUCTION), while_trying=lambda: watch(STEP))


def parse_task(event: object) -> ActorTask:
    """Return the task that an event holds, or raise `TaskRefusedError`."""
    text = json.dumps(event, separators=(",", ":"), ensure_ascii=False)
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > MAX_EVENT_BYTES:
        raise TaskRefusedError(f"event of {len(data)} bytes, at most {MAX_EVENT_BYTES} are allowed")
    try:
        return ACTOR_TASK.validate_json(data)
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, e['loc'])) or 'event'}: {e['msg']}" for e in error.errors())
        raise TaskRefusedError(f"event is no actor task: {'; '.join(wrong)}") from None
