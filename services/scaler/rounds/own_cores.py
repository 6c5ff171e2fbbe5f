"""The split of a round's actors between the learner's own cores and functions.

With n actors and c own cores, the first m of them run here and the others are functions. An own
rollout takes t_o, and a rollout on a function t_f, with its call. The round then waits

    T(m) = max(ceil(m / c) * t_o, t_f where m < n)

and costs (n - m) * u + (w + l) * T(m), with a function's price u, the value w of a second, and the
learner's price l of a second. The cheapest m is taken; among equals the largest.
"""

import math
from dataclasses import dataclass, replace

from services.scaler.book.attempts import FunctionTimes
from services.scaler.book.records import JobRecord
from shared.contracts.rounds import OwnActors
from shared.money.costs import CostBasis, cpu_share, lambda_gb_seconds
from shared.money.prices import SECONDS_PER_HOUR

GUESSED_CALL_S = 0.06
"""Seconds of a function call beside its steps, until the job has measured them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Time and cost of both places."""

    cores: int
    """Own actors (c)."""
    own_s: float
    """Time of a rollout on an own core (t_o); 0 if unknown: it is assumed to be short."""
    function_s: float
    """Time of a rollout on a function, with the call (t_f)."""
    function_usd: float
    """Price of a rollout on a function (u)."""
    held_usd_per_s: float
    """Price of the learner, and of all else that is billed by the second (l)."""
    usd_per_hour: float
    """Value of time (w), per hour."""
    longest_s: float = math.inf
    """Longest time for all own rollouts of a core in a round."""
    most_turns: float = math.inf
    """Most own rollouts of a core in a round."""
    shared: bool = False
    """Whether functions run on the same cores, as on one machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How many of a round's actors run on own cores."""

    own: int
    most_own: int
    """The most that fit into the allowed time."""
    reason: str


NOWHERE = Split(own=0, most_own=0, reason="")
"""Of a job without own actors."""


def split(num_actors: int, places: Places) -> Split:
    """Return how many actors of a round run on own cores, at the least cost."""
    own_s, cores = places.own_s, places.cores
    turns = int(min(math.ceil(num_actors / cores), places.most_turns))
    if own_s * turns > places.longest_s:
        turns = max(1, int(places.longest_s / own_s))
    most = min(num_actors, turns * cores)
    if places.shared and most == num_actors:
        return Split(own=most, most_own=most, reason=f"own cores: all {most}, functions share them")
    usd_per_s = places.usd_per_hour / SECONDS_PER_HOUR + places.held_usd_per_s

    def waits_s(own: int) -> float:
        functions_s = places.function_s if own < num_actors else 0.0
        return max(math.ceil(own / cores) * own_s, functions_s)

    def costs_usd(own: int) -> float:
        return (num_actors - own) * places.function_usd + usd_per_s * waits_s(own)

    # Within a turn of all cores another own actor costs nothing.
    tried = (min(most, turn * cores) for turn in range(turns + 1))
    own = min(tried, key=lambda number: (costs_usd(number), -number))
    return Split(
        own=own,
        most_own=most,
        reason=f"own cores: {own} of {num_actors} on {cores} ({_ms(own_s)} a rollout; as a "
        f"function {_ms(places.function_s)} and ${places.function_usd:.2g})",
    )


def places_of(
    record: JobRecord,
    own: OwnActors | None,
    basis: CostBasis,
    *,
    num_actors: int,
) -> Places | None:
    """Return both places' times and costs for a round of this size; None without own cores.

    `own` has the cores that the learner offers, and `basis` the job's learner.
    """
    if own is None or not record.job.spec.actors.own:
        return None
    steps = record.job.spec.steps_of(num_actors)
    progress = record.job.progress
    searches = record.job.spec.searches
    if searches and progress.rounds:  # episodes may be far shorter than their limit
        steps = progress.env_steps // (progress.rounds * num_actors)
    described_s = record.job.described_environment.step_s
    own_s = own.rollout_s(steps)
    if own_s is None:
        own_s = described_s * steps
    times = record.function_times
    if times is None:
        # A simulator that waits takes equally long anywhere; one that computes does not.
        step_s = described_s or (own.step_s or 0.0) / cpu_share(basis.memory_mb)
        times = FunctionTimes(step_s=step_s, call_s=GUESSED_CALL_S)
    function_s = times.call_s + times.step_s * steps
    prices = basis.prices
    billed_s = min(function_s, basis.function_timeout_s)
    return Places(
        cores=own.num,
        own_s=own_s,
        function_s=function_s,
        function_usd=lambda_gb_seconds(billed_s, basis.memory_mb) * prices.lambda_usd_per_gb_s
        + prices.lambda_usd_per_request,
        held_usd_per_s=basis.usd_per_s,
        usd_per_hour=record.job.spec.actors.value_of_time_usd_per_hour,
        longest_s=basis.function_timeout_s,
        # A search's actors share a queue: more own ones than cores would not be faster.
        most_turns=1 if searches and not basis.shares_cores else math.inf,
        shared=basis.shares_cores,
    )


def with_more_own(split: Split, *, granted: int, num_actors: int) -> Split:
    """Return the split if only `granted` functions are allowed: own cores take the others."""
    own = min(split.most_own, num_actors - granted)
    if own <= split.own:
        return split
    return replace(split, own=own, reason=f"{split.reason}; concurrency: {own} on own cores")


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"
