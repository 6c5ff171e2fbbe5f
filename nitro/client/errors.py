"""Errors between a client and the API, with advice."""

from http import HTTPStatus

from nitro.errors import EXIT_FAILED, EXIT_USAGE, CommandError
from shared.contracts.jobs import Job
from shared.contracts.problem import Problem

AWAY = frozenset(
    {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
)
"""Statuses of an endpoint while its scaler restarts."""
AWAY_OR_BUSY = AWAY | {HTTPStatus.TOO_MANY_REQUESTS}
"""The same, or while its store throttles it."""


class ApiError(CommandError):
    """The API refused a call; `problem` says why, field by field."""

    def __init__(self, problem: Problem) -> None:
        refused = problem.status < HTTPStatus.INTERNAL_SERVER_ERROR
        super().__init__(
            "\n".join(problem_lines(problem)), exit_code=EXIT_USAGE if refused else EXIT_FAILED
        )
        self.problem = problem


class ApiUnreachableError(CommandError):
    """No answer from the API, or an answer that is not Nitro's."""

    exit_code = EXIT_FAILED


class JobRefusedError(CommandError):
    """A job was accepted and then refused: its environment is unavailable or does not fit."""


class NoAnswerError(ApiUnreachableError):
    """The API is unreachable, or the connection broke: it may or may not have received the call."""


def require_admitted(job: Job) -> None:
    """Raise the reason for a job's refusal.

    Raises:
        JobRefusedError: It failed before its environment was known.
    """
    if job.status == "failed" and job.environment is None:
        refused = job.stop_reason == "refused"
        raise JobRefusedError(
            job.error or "refused", exit_code=EXIT_USAGE if refused else EXIT_FAILED
        )


def problem_lines(problem: Problem) -> list[str]:
    """Return a problem as `field: message` lines, or its one-line detail if it names no field."""
    if problem.errors:
        return [f"{error.field}: {error.message}" for error in problem.errors]
    return [problem.detail or problem.title]
