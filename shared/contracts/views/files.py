"""A job's files and log lines, and the preview of a job before submission."""

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
    """Whether the URL is pre-signed for 15 minutes; otherwise it is this API's."""


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
    """Available logs; none if this deployment keeps them elsewhere."""
    lines: tuple[LogLine, ...]
    truncated: bool
    """Whether earlier lines may be missing."""


class JobEstimate(Message):
    """The preview of a job: nothing was created."""

    accepted: bool
    errors: tuple[FieldError, ...]
    """Reasons for a refusal."""
    checked_environment: bool
    """Whether its environment is known. If not, an actor describes it after the submission."""
    spec: JobSpec
    """The job with its preset's defaults."""
    rounds: Count
    worst_usd: NonNegativeFloat
    """Highest possible cost: the smaller of its budget and the worst case of all its rounds."""
    worst_round_usd: NonNegativeFloat
    """Worst case of its largest round."""
    expected_usd: NonNegativeFloat | None
    """Cost of similar jobs; None without any."""
    expected_s: NonNegativeFloat | None
    assumptions: tuple[str, ...]
