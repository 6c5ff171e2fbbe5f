"""The Lambda function: one event in, one rollout done, one report out.

What is built at import is what warm invocations share, the connection to the cache included: it
opens before the first event comes.
"""

import itertools
import os
import time
from contextlib import AbstractContextManager
from typing import ClassVar, NoReturn

from functions.actor.actor import Actor
from functions.actor.errors import RolloutError
from functions.actor.last_words import end_with
from functions.actor.loaded_code import LoadedCode
from functions.actor.settings import Settings
from functions.actor.watchdog import CONSTRUCTION, STEP, Watchdog
from functions.events import parse_task
from shared.cache.client import TrajectoryCache
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.rollouts import ACTOR_TASK, DescribeTask, PingReport, PingTask, RolloutTask
from shared.environments.building import describe
from shared.environments.packages import import_environment_packages

_settings = Settings()
if _settings.folder is not None:
    os.chdir(_settings.folder)
_began_ns = time.time_ns()
import_environment_packages(_settings.environment_packages)
_cache = _settings.cache(TrajectoryCache)
_cache.connect()
_code = LoadedCode(_settings.environment_packages, began_ns=_began_ns)


class _AtHand:
    """The invocation that runs now; there is one at a time."""

    request_id = ""
    begun: ClassVar[set[tuple[str, str]]] = set()
    """What this process has rolled out for: jobs, each under a lease."""


def _end(error: RolloutError) -> NoReturn:
    end_with(error, runtime_api=_settings.runtime_api, request_id=_AtHand.request_id)


_watchdog = Watchdog(timeout_s=_settings.step_timeout_s, give_up=_end, ends_process=True)
_actor = Actor(_cache, watchdog=_watchdog, kept_environments=_settings.kept_environments)
_invocations = itertools.count()


def handler(event: object, context: object) -> dict[str, object]:
    """Do the task in the event; return what it answers to its kind of task, as JSON.

    The process ends with a rollout that failed, once that is reported.

    Raises:
        TaskRefusedError: The event is too large or malformed; the message names the fields.
    """
    is_first = next(_invocations) == 0
    _AtHand.request_id = str(getattr(context, "aws_request_id", ""))
    task = parse_task(event, ACTOR_TASK, kind="actor")
    cold_start = is_first and _settings.starts_cold
    if isinstance(task, PingTask):
        _cache.connect()  # AWS drops connections that are idle for minutes
        time.sleep(task.hold_s)
        return PingReport(cold_start=cold_start).model_dump(mode="json")
    _require_present_code(task)
    try:
        if isinstance(task, DescribeTask):
            return _described(task).model_dump(mode="json")
        return _actor.run(task, cold_start=cold_start).model_dump(mode="json")
    except RolloutError as error:
        _end(error)
    finally:
        _code.note()


def _require_present_code(task: DescribeTask | RolloutTask) -> None:
    """Leave a task that begins something new to another process where this one's code is old."""
    tenure = (task.job_id, task.lease_hash) if isinstance(task, RolloutTask) else None
    if tenure not in _AtHand.begun and _code.has_changed():
        os._exit(os.EX_TEMPFAIL)
    if tenure is not None:
        _AtHand.begun.add(tenure)


def _described(task: DescribeTask) -> EnvironmentSpec:
    def watch(awaited: str) -> AbstractContextManager[None]:
        return _watchdog.watching(task.env.env_id, lambda: None, awaited=awaited)

    return describe(task.env, while_building=watch(CONSTRUCTION), while_trying=lambda: watch(STEP))
