"""Errors of unusable rounds for users, with the cause first."""

from collections.abc import Sequence

from services.learner.rounds.collector import RoundCollector
from shared.contracts.job_spec import JobSpec

_REASONS_TOLD = 3
_LONGEST_REASON = 200
"""Most characters of reasons other than the environment's: several have to fit."""


class RoundLostError(RuntimeError):
    """A round has too few trajectories to learn from.

    Args:
        message: The message to the user.
        fails_again: Whether an unchanged job would fail in the same way after a resume.
    """

    def __init__(self, message: str, *, fails_again: bool = False) -> None:
        super().__init__(message)
        self.fails_again = fails_again


def environment_failed(collector: RoundCollector) -> RoundLostError:
    """Return the error of a doomed round, with the environment's traceback."""
    plan, blaming = collector.plan, collector.blaming
    kinds = {why.splitlines()[0] for why in blaming}
    alike = "like this" if len(kinds) == 1 else "in this way or another"
    return RoundLostError(
        f"{blaming[0]}\n"
        f"{collector.blamed} of round {plan.round} failed {alike} within "
        f"{collector.elapsed_s:.1f} s, and none brought a trajectory. Launching them again, with "
        "the same seeds, would not help",
        fails_again=True,
    )


def round_lost(collector: RoundCollector, *, spec: JobSpec, history: str) -> RoundLostError:
    """Return the error of a round with too few trajectories, with its history."""
    plan = collector.plan
    size_field = "fragment" if spec.learner == "external" else spec.size_field
    slow = f"lower {size_field} or raise the scaler's deadline"
    if spec.searches:
        slow = "raise the number of actors or actor_timeout_s, or lower hyperparameters.directions"
    return RoundLostError(
        f"{reasons(collector.failures)}\n"
        f"round {plan.round}: only {collector.arrived} arrived in {collector.elapsed_s:.1f} s, "
        f"{history}. "
        f"See the actors' log; a process that exited was ended by {spec.env_id} or for want of "
        f"memory; if actors are merely slow, {slow}"
    )


def reasons(failures: Sequence[str]) -> str:
    """Return the first reasons only: a thousand would hide the cause.

    Each is shortened, except for a traceback of several lines.
    """
    told = [why if "\n" in why else why[:_LONGEST_REASON] for why in failures[:_REASONS_TOLD]]
    more = len(failures) - _REASONS_TOLD
    return "; ".join(told) + (f"; and {more} more" if more > 0 else "")
