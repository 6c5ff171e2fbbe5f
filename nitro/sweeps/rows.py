"""A row of a sweep: one job with its place in the table, its status and its outcome."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import JsonValue

from shared.contracts.job_spec import JobSpec
from shared.contracts.message import Count, JobId, Message, Number, PositiveFloat

RowStatus = Literal[
    "waiting", "open", "paused", "finished", "stopped", "budget", "failed", "not started"
]
"""`open`: submitted and not known to have ended. `paused`: at a rung, until promoted. `stopped`: by
Ctrl-C, until the sweep resumes. `budget`: ended early by its cap.
"""
DONE: frozenset[RowStatus] = frozenset({"finished", "budget", "failed", "not started"})


class Point(NamedTuple):
    """One evaluation."""

    env_steps: float
    mean_return: float


def reached(curve: Sequence[Point], env_steps: float) -> bool:
    """Whether a curve has an evaluation after at least this many steps."""
    return bool(curve) and curve[-1].env_steps >= env_steps


class Outcome(Message):
    """A job's outcome so far."""

    rounds: Count
    env_steps: Count
    curve: tuple[Point, ...] = ()
    """Evaluations, or means of the last 100 training episodes without evaluations."""
    spent_usd: Number = 0.0
    """Projected cost on AWS."""
    reserved_usd: Number = 0.0
    """Dollars reserved in addition: interrupted launches may still be billed."""
    wall_s: Number = 0.0
    """Time in rounds on this machine."""

    @property
    def first_return(self) -> float | None:
        """The first evaluation, of the untrained policy."""
        return self.curve[0].mean_return if self.curve else None

    @property
    def final_return(self) -> float | None:
        """The last evaluation."""
        return self.curve[-1].mean_return if self.curve else None

    def return_at(self, env_steps: float) -> float | None:
        """Return the first evaluation after at least this many steps, or else the last one."""
        later = (point.mean_return for point in self.curve if point.env_steps >= env_steps)
        return next(later, self.final_return)


class Row(Message):
    """One job of a sweep."""

    env_id: str
    setting: str
    seed: Count
    spec: JobSpec
    """The job without its budget, which is allotted at the start."""
    status: RowStatus = "waiting"
    reason: str = ""
    """Why it failed, did not start or ended early."""
    job_id: JobId | None = None
    cap_usd: PositiveFloat | None = None
    """The job's share of the sweep's budget; None without a cap."""
    refused_usd: Number = 0.0
    """The largest share of the budget that was too small to start or resume it."""
    attempt: Count = 0
    """Number of submissions refused for their budget."""
    pause_steps: PositiveFloat | None = None
    """Environment steps of its next rung."""
    end_steps: Count | None = None
    """Environment steps that complete it, if its rounds do not."""
    trial: Count | None = None
    """Trial of a search; a finalist has the trial of its values."""
    values: dict[str, JsonValue] = {}
    """A trial's drawn values by dotted path."""
    final: bool = False
    """Whether it is a finalist's fresh seed."""
    outcome: Outcome | None = None

    @property
    def key(self) -> str:
        """Its unique name in the sweep."""
        return f"{self.env_id}/{self.setting}/{self.seed}"

    @property
    def spent_usd(self) -> float:
        """Its cost."""
        return 0.0 if self.outcome is None else self.outcome.spent_usd

    @property
    def most_usd(self) -> float:
        """The most that it may cost, including outstanding bills."""
        return self.spent_usd + (0.0 if self.outcome is None else self.outcome.reserved_usd)
