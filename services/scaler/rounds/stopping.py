"""When a job ends, as one pure function; the budget is asked separately, it needs a price."""

import math
from dataclasses import dataclass

from shared.contracts.job_spec import StopRule
from shared.contracts.jobs import StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class StopConditions:
    """Where a job stands when it asks for a round."""

    round_index: int
    """Round asked for: the number of updates made so far."""
    asked_to_stop: bool
    exhausted: bool = False
    """Whether the time it was held without a plan has used the budget up."""
    latest_return: float | None
    """Mean return of the newest evaluation."""
    wall_s: float
    """Time since the first round, without the time between a stop and a resume."""
    since_start_s: float = 0.0
    """Time since the first round after it was last queued."""
    longest_s: float = math.inf
    """How long this deployment lets a job run at a time."""


def stop_reason(rule: StopRule, conditions: StopConditions) -> tuple[StopReason, str] | None:
    """Return the first condition met and a sentence about it, or None to go on."""
    if conditions.asked_to_stop:
        return "user", "the job was asked to stop"
    if conditions.exhausted:
        return "budget", "the time since the last plan has used the budget up"
    target, latest = rule.target_return, conditions.latest_return
    if target is not None and latest is not None and latest >= target:
        return "target_return", f"evaluation return {latest:g} reached the target {target:g}"
    if conditions.round_index >= rule.max_rounds:
        return "max_rounds", f"all {rule.max_rounds} rounds are done"
    if rule.max_wall_s is not None and conditions.wall_s >= rule.max_wall_s:
        return (
            "max_wall",
            f"{conditions.wall_s:.0f} s have passed, {rule.max_wall_s:g} s are allowed",
        )
    if conditions.since_start_s >= conditions.longest_s:
        return "max_wall", (
            f"it ran for {conditions.since_start_s:.0f} s, NITRO_LONGEST_JOB_S allows "
            f"{conditions.longest_s:g} s at a time"
        )
    return None
