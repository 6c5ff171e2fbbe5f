"""What a learner and an actor on its own cores say to each other: a line of JSON each way."""

from shared.contracts.message import Message
from shared.contracts.rollouts import ActorReport, RolloutTask


class OwnCredentials(Message):
    """AWS credentials that a connection to the cache is signed with, as the learner has them."""

    access_key: str
    secret_key: str
    session_token: str | None = None


class OwnCall(Message):
    """A task."""

    task: RolloutTask
    credentials: OwnCredentials | None = None


class OwnReply(Message):
    """What became of it."""

    report: ActorReport | None = None
    """None where it failed."""
    error: str = ""
    """Name of the exception that it failed with."""
    reason: str = ""
    """Its message."""
