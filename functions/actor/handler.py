"""The Lambda function: one event in, one rollout done, one report out.

What is built at import is what warm invocations share, the connection to the cache included: it
opens before the first event comes.
"""

import itertools
import time
from contextlib import AbstractContextManager

from functions.actor.actor import Actor
from functions.actor.settings import Settings
from functions.actor.watchdog import CONSTRUCTION, STEP, watched
from functions.events import parse_task
from shared.cache.client import TrajectoryCache
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.rollouts import ACTOR_TASK, DescribeTask, PingReport, PingTask
from shared.environments.building import describe
from shared.environments.packages import import_environment_packages

_settings = Settings()
import_environment_packages(_settings.environment_packages)
_cache = _settings.cache(TrajectoryCache)
_cache.connect()
_actor = Actor(_cache, step_timeout_s=_settings.step_timeout_s)
_invocations = itertools.count()


def handler(event: object, context: object) -> dict[str, object]:
    """Do the task in the event; return what it answers to its kind of task, as JSON.

    Raises:
        TaskRefusedError: The event is too large or malformed; the message names the fields.
    """
    is_first = next(_invocations) == 0
    task = parse_task(event, ACTOR_TASK, kind="actor")
    if isinstance(task, DescribeTask):
        return _described(task).model_dump(mode="json")
    cold_start = is_first and _settings.starts_cold
    if isinstance(task, PingTask):
        _cache.connect()  # AWS drops connections that are idle for minutes
        time.sleep(task.hold_s)
        return PingReport(cold_start=cold_start).model_dump(mode="json")
    return _actor.run(task, cold_start=cold_start).model_dump(mode="json")


def _described(task: DescribeTask) -> EnvironmentSpec:
    def watch(awaited: str) -> AbstractContextManager[None]:
        timeout_s = _settings.step_timeout_s
        return watched(task.env.env_id, lambda: None, timeout_s=timeout_s, awaited=awaited)

    return describe(task.env, while_building=watch(CONSTRUCTION), while_trying=lambda: watch(STEP))
