"""Leaving a job before a round is done."""

from shared.contracts.jobs import StopReason


class LeftEarly(Exception):  # noqa: N818 - not an error: the job continues elsewhere, or later
    """The learner had to leave the job before a round was done."""

    def __init__(self, why: str, *, stop: StopReason | None = None) -> None:
        super().__init__(why)
        self.stop = stop
        """Why the job itself ends; None if another learner continues it."""
