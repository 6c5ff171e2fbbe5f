"""The Lambda function: one event in, one rollout, one report out.

Warm invocations share the objects built at import, including the connection to the cache, which
opens before the first event.
"""

from typing import NoReturn

from functions.actor.errors import RolloutError
from functions.actor.last_words import end_with
from functions.actor.process import ActorProcess
from functions.actor.settings import Settings
from functions.events import parse_task
from shared.cache.client import TrajectoryCache
from shared.contracts.rollouts import ACTOR_TASK

_settings = Settings()


class _AtHand:
    """The current invocation; there is only one at a time."""

    request_id = ""


def _end(error: RolloutError) -> NoReturn:
    end_with(error, runtime_api=_settings.runtime_api, request_id=_AtHand.request_id)


_cache = _settings.cache(TrajectoryCache)
_process = ActorProcess(_settings, _cache, end=_end)
_cache.connect()


def handler(event: object, context: object) -> dict[str, object]:
    """Run the task in the event; return its report as JSON.

    After a failed rollout the process reports it and ends.

    Raises:
        TaskRefusedError: The event is too large or malformed; the message names the fields.
    """
    cold_start = _process.begin()
    _AtHand.request_id = str(getattr(context, "aws_request_id", ""))
    task = parse_task(event, ACTOR_TASK, kind="actor")
    return _process.do(task, cold_start=cold_start).model_dump(mode="json")
