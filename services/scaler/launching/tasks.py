"""Tasks of functions: their kinds, their events, and how they ended."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import ValidationError

from services.scaler.launching.execution import Execution
from shared.cache.arrivals import FailureKind
from shared.contracts.gradients import GradientReport, GradientTask
from shared.contracts.message import Message
from shared.contracts.rollouts import ActorReport, RolloutTask

MAX_EVENT_BYTES = 4096
T = TypeVar("T", bound=Message)
R = TypeVar("R", bound=ActorReport | GradientReport)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKind(Generic[T, R]):
    """The tasks and reports of one function."""

    read: Callable[[bytes], R]
    """Reads a report; raises `ValidationError`."""
    identity: Callable[[T], dict[str, object]]
    """Names a task, for logs."""
    asked: Callable[[T], tuple[object, ...]]
    """Identity of a task."""
    answered: Callable[[R], tuple[object, ...]]
    """Identity of a report."""

    def report(self, task: T, execution: Execution) -> tuple[R | None, str]:
        """Return a task's report; without one, None and the reason."""
        if execution.kind != "done":
            return None, execution.reason
        try:
            report = self.read(execution.payload)
        except ValidationError as error:
            return None, f"its reply is no report: {error.error_count()} fields are wrong"
        wanted, got = self.asked(task), self.answered(report)
        if wanted != got:
            return None, f"its reply is about {got}, not {wanted}"
        return report, ""


ROLLOUTS: TaskKind[RolloutTask, ActorReport] = TaskKind(
    read=ActorReport.read,
    identity=lambda task: {
        "job": task.job_id,
        "round": task.round,
        "attempt": task.attempt,
        "actor": task.actor_index,
        "mode": task.mode,
    },
    asked=lambda task: (task.job_id, task.round, task.actor_index, task.mode),
    answered=lambda report: (report.job_id, report.round, report.actor_index, report.mode),
)
"""Calls of actors."""
GRADIENTS: TaskKind[GradientTask, GradientReport] = TaskKind(
    read=GradientReport.read,
    identity=lambda task: {
        "job": task.job_id,
        "round": task.round,
        "request": task.request,
        "call": task.call.call,
    },
    asked=lambda task: (task.job_id, task.round, task.call.call),
    answered=lambda report: (report.job_id, report.round, report.call),
)
"""Calls of learner functions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome(Generic[T, R]):
    """How one task ended, after all retries."""

    task: T
    report: R | None = None
    """None if it failed for good."""
    reason: str = ""
    """Why it failed."""
    failure: FailureKind = "lost"
    """The kind of its failure, if any."""
    billed_s: tuple[float, ...] = ()
    """Duration of each execution that was billed."""
    requests: int = 0
    throttled: int = 0
    """Answers 429."""
    sent_at: float | None = None
    """`time.perf_counter` when the first request was ready; None without one."""


RolloutOutcome = TaskOutcome[RolloutTask, ActorReport]
GradientOutcome = TaskOutcome[GradientTask, GradientReport]


def event_of(task: Message) -> bytes:
    """Return a task's event.

    Raises:
        ValueError: It is longer than `MAX_EVENT_BYTES`.
    """
    payload = task.model_dump_json().encode()
    if len(payload) > MAX_EVENT_BYTES:
        raise ValueError(
            f"its event has {len(payload)} bytes, at most {MAX_EVENT_BYTES} fit; "
            "shorten env_kwargs, wrappers or env_variables"
        )
    return payload
