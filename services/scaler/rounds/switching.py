"""Which scaling policy decides which rounds of a job, once it is changed; a pure function."""

from shared.contracts.jobs import Job, ScalingSwitch
from shared.contracts.scaling_spec import Policy


def switched(
    job: Job, scaling: Policy, *, first_round: int, now: float
) -> tuple[ScalingSwitch, ...]:
    """Return a job's changes with one more, which replaces those for the same and later rounds."""
    kept = tuple(switch for switch in job.switches if switch.round < first_round)
    before = job.model_copy(update={"switches": kept})
    planned = any(switch.round > first_round for switch in job.switches)
    if not planned and job.scaling_of(first_round) == scaling:
        return job.switches
    if before.scaling_of(first_round) == scaling:
        return kept
    return (*kept, ScalingSwitch(round=first_round, at=now, scaling=scaling))
