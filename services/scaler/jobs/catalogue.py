"""Descriptions of environments by the actor image, which alone has the simulators."""

import asyncio
import re
import time
from http import HTTPStatus

from pydantic import ValidationError

from services.scaler.launching.execution import Execution, error_message
from services.scaler.launching.lambda_function import LambdaFunction
from services.scaler.refusals import ApiError, invalid
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.problem import FieldError
from shared.contracts.rollouts import DescribeTask

_MAX_KNOWN = 256
_TRIES = 3
"""How often an actor may fail before it has described an environment."""
_NOT_STARTED = frozenset({"throttled", "waking", "unreachable"})
PATIENCE_S = 180.0
"""How long to retry a function that cannot start: waking up takes about a minute."""
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 3.0
_NAMED_FIELD = re.compile(
    r"(?:^|: )(env_id|env_kwargs(?:\.\w+)?|wrappers(?:\.\w+)*)\b(.*)", re.DOTALL
)
"""Prefix of an actor's refusal of an environment, as opposed to a failure."""
_PROCESS_ENDED = "Runtime.ExitError"
"""Lambda's report of a process that died in an invocation."""


class EnvironmentCatalogue:
    """Asks actors about environments, and caches the answers for a while.

    A deployment replaces the image while the scaler runs, and with it what an environment is.
    """

    def __init__(self, function: LambdaFunction, *, ttl_s: float) -> None:
        self._function = function
        self._ttl_s = ttl_s
        self._known: dict[str, tuple[EnvironmentSpec, float]] = {}
        """By question: the answer and its expiry (`time.monotonic`)."""

    def known(self, env: EnvironmentRef) -> EnvironmentSpec | None:
        """Return an environment's cached description; None if an actor has to be asked."""
        spec, until = self._known.get(env.model_dump_json(), (None, 0.0))
        return spec if time.monotonic() < until else None

    async def describe(self, env: EnvironmentRef) -> EnvironmentSpec:
        """Return an environment's spaces.

        Raises:
            ApiError: The actor refuses the environment, or is unavailable.
        """
        known = self.known(env)
        if known is not None:
            return known
        spec = _spec_of(env.env_id, await self._ask(DescribeTask(env=env)))
        key = env.model_dump_json()
        self._known.pop(key, None)
        if len(self._known) >= _MAX_KNOWN:
            self._known.pop(next(iter(self._known)))
        self._known[key] = (spec, time.monotonic() + self._ttl_s)
        return spec

    async def _ask(self, task: DescribeTask) -> Execution:
        payload = task.model_dump_json().encode()
        give_up_at = time.monotonic() + PATIENCE_S
        failed, pause_s = 0, _FIRST_PAUSE_S
        while True:
            execution = await self._function.invoke(payload)
            if execution.kind in _NOT_STARTED:
                # Nothing has started: Lambda is busy, waking the function, or unreachable.
                if time.monotonic() + pause_s >= give_up_at:
                    return execution
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            failed += 1
            if execution.kind == "done" or _is_final(execution) or failed == _TRIES:
                return execution


def _refused_field(execution: Execution) -> FieldError | None:
    """Return the actor's reason for refusing the environment; None without one."""
    if execution.kind != "failed" or not execution.payload:
        return None
    named = _NAMED_FIELD.search(error_message(execution.payload))
    if named is None:
        return None
    # The field is reported separately, so the message need not repeat it.
    return FieldError(field=named.group(1), message=named.group(2).lstrip(": "))


def _is_final(execution: Execution) -> bool:
    """Whether another actor would answer the same: the environment is refused, failed or hung."""
    refused = _refused_field(execution) is not None
    return refused or execution.kind == "refused" or execution.failure != "lost"


def _spec_of(env_id: str, execution: Execution) -> EnvironmentSpec:
    if execution.kind == "done":
        try:
            return EnvironmentSpec.read(execution.payload)
        except ValidationError as error:
            raise ApiError(
                HTTPStatus.BAD_GATEWAY,
                f"the actor's description of the environment is malformed: {error}",
            ) from error
    refused = _refused_field(execution)
    if refused is not None:
        raise invalid(refused)
    if execution.failure != "lost":
        raise invalid(FieldError(field="env_id", message=f"{env_id!r}: {execution.reason}"))
    if execution.kind == "failed" and _PROCESS_ENDED in execution.reason:
        message = f"{env_id!r} ended the actor's process each time: {execution.reason}"
        raise invalid(FieldError(field="env_id", message=message))
    raise ApiError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        f"the actor function cannot be asked about env_id {env_id!r}: {execution.reason}",
    )
