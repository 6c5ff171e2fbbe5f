"""Messages between a learner and an own actor: a line of JSON each way."""

from shared.contracts.message import Message
from shared.contracts.rollouts import ActorReport, RolloutTask


class OwnCredentials(Message):
    """The learner's AWS credentials to sign connections to the cache."""

    access_key: str
    secret_key: str
    session_token: str | None = None


class OwnCall(Message):
    """A task."""

    task: RolloutTask
    credentials: OwnCredentials | None = None


class OwnReply(Message):
    """Its outcome."""

    report: ActorReport | None = None
    """None if it failed."""
    error: str = ""
    """Name of its exception."""
    reason: str = ""
    """Its message."""
