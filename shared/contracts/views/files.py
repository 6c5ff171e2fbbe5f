"""A job's files and log lines, and what a job not yet submitted would cost."""

from typing import Literal

from shared.contracts.job_spec import JobSpec
from shared.contracts.message import Count, JobId, Message, NonNegativeFloat, Number
from shared.contracts.problem import FieldError


class ArtifactLink(Message):
    """One file."""

    name: str
    """Relative to the run's folder."""
    size: Count
    """Bytes."""
    modified_at: Number
    url: str
    presigned: bool
    """Whether the URL is good by itself for 15 minutes; otherwise it is this API's."""


class ArtifactLinks(Message):
    """A job's files by name."""

    job_id: JobId
    location: str
    files: tuple[ArtifactLink, ...]
    truncated: bool
    """Whether there are more: ask again with `after` set to the last name."""


LogSource = Literal["learner", "scaler", "actor"]


class LogLine(Message):
    """One line of a log."""

    source: LogSource
    text: str


class LogPage(Message):
    """The newest lines that name a job, in order within each source."""

    job_id: JobId
    sources: tuple[LogSource, ...]
    """Logs that there are; none where this deployment keeps them elsewhere."""
    lines: tuple[LogLine, ...]
    truncated: bool
    """Whether earlier lines may have been left out."""


class JobEstimate(Message):
    """What would become of a job if it were submitted; nothing was made."""

    accepted: bool
    errors: tuple[FieldError, ...]
    """Why it would be refused."""
    checked_environment: bool
    """Whether its environment is known. If not, an actor describes it after the submission."""
    spec: JobSpec
    """With all that it leaves to its preset."""
    rounds: Count
    worst_usd: NonNegativeFloat
    """The most it can cost: its budget, or all its rounds at their worst where that is less."""
    worst_round_usd: NonNegativeFloat
    """The most its largest round can cost."""
    expected_usd: NonNegativeFloat | None
    """By what jobs like it came to; None where there are none."""
    expected_s: NonNegativeFloat | None
    assumptions: tuple[str, ...]
