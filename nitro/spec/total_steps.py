"""`--total-steps`: a job's length in environment steps, converted to rounds.

A job's length stays a number of rounds, because its step sizes decay by rounds. So the steps of a
round must be known in advance: with a fixed number of actors, a schedule, or `samples_per_round`.
"""

from itertools import accumulate

from nitro.errors import CommandError
from shared.contracts.job_spec import JobSpec
from shared.contracts.scaling_spec import FixedScaling, ScheduleScaling
from shared.contracts.stop_rule import MAX_ROUNDS


def parse_steps(text: str) -> int:
    """Read a number of steps.

    >>> parse_steps("1e6"), parse_steps("50_000")
    (1000000, 50000)

    Raises:
        CommandError: It is not a whole number above 0.
    """
    try:
        steps = float(text)
        if steps >= 1 and steps == int(steps):
            return int(steps)
    except (ValueError, OverflowError):
        pass
    raise CommandError(
        f"--total-steps: must be a whole number from 1, such as 1e6 or 1_000_000, got {text!r}"
    )


def rounds_for(spec: JobSpec, total_steps: int) -> int:
    """Return the fewest rounds of a job with at least this many environment steps.

    Raises:
        CommandError: The steps of its rounds are not known in advance, or exceed a job's most
            rounds; gives advice.
    """
    known = _steps_by_round(spec)
    if known is None:
        fewest, most = spec.actors.min, spec.actors.max
        raise CommandError(
            f"--total-steps: a round of {fewest} to {most} actors has "
            f"{fewest * spec.steps_of(fewest):,} to {most * spec.steps_of(most):,} steps, so the "
            "number of rounds is unknown. Give --rounds, or --scaling fixed:N"
            + ("" if spec.open_rounds > 1 else ", or --set samples_per_round=N")
        )
    first, then = known
    for rounds, steps in enumerate(accumulate(first), start=1):
        if steps >= total_steps:
            return rounds
    rounds = len(first) + -(-(total_steps - sum(first)) // then)
    if rounds > MAX_ROUNDS:
        raise CommandError(
            f"--total-steps: {total_steps:,} exceeds a job's {MAX_ROUNDS:,} rounds of {then:,} "
            "steps"
        )
    return rounds


def has_known_rounds(spec: JobSpec) -> bool:
    """Whether the steps of a job's rounds are known in advance."""
    return _steps_by_round(spec) is not None


def planned_steps(spec: JobSpec) -> int | None:
    """Return the environment steps of all rounds of a job, if known.

    Budget, concurrency and lost actors can make them fewer. Whole episodes make some more: their
    number is looked at between rounds.
    """
    known = _steps_by_round(spec)
    if known is None:
        return spec.stop.max_env_steps
    first, then = known
    rounds = spec.stop.max_rounds
    return sum(first[:rounds]) + max(0, rounds - len(first)) * then


def _steps_by_round(spec: JobSpec) -> tuple[list[int], int] | None:
    """Return the steps of the first rounds and of each later round; None if they vary."""
    numbers: tuple[int, ...] = ()
    if spec.searches:
        return None
    if isinstance(spec.scaling, ScheduleScaling):
        numbers = spec.scaling.num_actors
    elif isinstance(spec.scaling, FixedScaling):
        numbers = (spec.scaling.num_actors,)
    elif spec.samples_per_round is not None or spec.actors.min == spec.actors.max:
        # They are equal except for remainders: none has fewer than this.
        possible = range(spec.actors.min, spec.actors.max + 1)
        numbers = (min(possible, key=lambda number: number * spec.steps_of(number)),)
    steps = [number * spec.steps_of(number) for number in numbers]
    return (steps[:-1], steps[-1]) if steps else None
