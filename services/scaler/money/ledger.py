"""The bill: the cost of a complete round, line by line.

A round's worst case is reserved when it is planned. The reservation is replaced by lines when two
things are known: the outcome of every invocation, and how long the learner was busy with the round.
Time-based items use one of two clocks. `wall` is the elapsed time. `projected` is the round's
estimated time on AWS, for runs on one machine.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from services.scaler.book.attempts import LaunchOutcome, OpenAttempt
from shared.contracts.billing import LedgerLine
from shared.contracts.job_spec import Warm
from shared.contracts.rounds import LaunchCounts
from shared.money.costs import (
    EXECUTIONS_PER_TASK,
    CostBasis,
    lambda_gb_seconds,
    worst_case_launch_usd,
)
from shared.money.one_server import ONE_SERVER_ASSUMPTIONS, round_on_servers
from shared.money.round_costs import (
    PAPER_SERVERS,
    SERVERFUL_ASSUMPTIONS,
    BillItem,
    MeasuredRound,
    execution_items,
    held_items,
    projection_assumptions,
    serverful_round_s,
    serverless_round_s,
)

Clock = Literal["wall", "projected"]
NOTHING_LAUNCHED = LaunchOutcome(
    counts=LaunchCounts(requested=0, succeeded=0, failed=0, reissued=0, throttled=0),
    requests=0,
    durations_s=(),
    slowest_sample_s=0.0,
    slowest_evaluation_s=0.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """A final bill."""

    lines: tuple[LedgerLine, ...]
    billed_s: float
    """Billed seconds of time-based items."""
    projected_s: float
    """Duration of the round on AWS."""
    serverful_s: float
    """Duration on the paper's servers."""
    server_s: dict[str, float]
    """Duration on one server, by its size."""
    busy_gb_s: float
    """Billed GB-seconds of its executions."""
    lost: int | None
    """Environments that were gone although the job had started as many before; None if it did not
    rely on them.
    """

    @property
    def amount_usd(self) -> float:
        """Sum of the lines."""
        return sum(line.amount_usd for line in self.lines)


def settle(attempt: OpenAttempt, basis: CostBasis, clock: Clock) -> Settlement | None:
    """Return the bill of one launched (round, attempt), or None while it is incomplete."""
    outcome, learner_s, held_s = attempt.outcome, attempt.learner_s, attempt.held_s
    if outcome is None or learner_s is None or held_s is None:
        return None
    measured = _measured(attempt, outcome, learner_s=learner_s, clock=clock)
    projected_s = serverless_round_s(measured, basis)
    billed_s = held_s if clock == "wall" else projected_s
    items = (*held_items(billed_s, basis), *execution_items(measured, basis))
    return Settlement(
        lines=ledger_lines(items, round_index=attempt.round, attempt=attempt.attempt),
        billed_s=billed_s,
        projected_s=projected_s,
        serverful_s=serverful_round_s(measured, basis, PAPER_SERVERS),
        server_s=round_on_servers(measured, basis),
        busy_gb_s=sum(lambda_gb_seconds(d, basis.memory_mb) for d in outcome.durations_s),
        lost=None if attempt.kept_warm != 0 else _lost(attempt, outcome, clock),
    )


def _lost(attempt: OpenAttempt, outcome: LaunchOutcome, clock: Clock) -> int:
    """Return how many restarted environments the job had already started before.

    In a projection, cold starts are the local machine's and say nothing about AWS.
    """
    return 0 if clock == "projected" else max(0, outcome.counts.cold_starts - attempt.cold)


def executions_usd(attempt: OpenAttempt, basis: CostBasis, clock: Clock) -> float:
    """Return the cost of an attempt's executions, or its upper bound while unknown."""
    if attempt.outcome is None:
        return worst_case_launch_usd(attempt.num_invocations, basis)
    measured = _measured(attempt, attempt.outcome, learner_s=0.0, clock=clock)
    return sum(item.amount_usd for item in execution_items(measured, basis))


def _measured(
    attempt: OpenAttempt, outcome: LaunchOutcome, *, learner_s: float, clock: Clock
) -> MeasuredRound:
    own = attempt.own_work
    return MeasuredRound(
        num_invocations=attempt.num_invocations,
        durations_s=outcome.durations_s,
        slowest_sample_s=outcome.slowest_sample_s,
        slowest_evaluation_s=outcome.slowest_evaluation_s,
        requests=outcome.requests,
        learner_s=learner_s,
        warm=attempt.warm,
        # Lambda's bill already includes cold starts; tasks that never ran have none.
        cold=min(attempt.cold, outcome.requests) if clock == "projected" else 0,
        launch_s=outcome.counts.launch_s or 0.0,
        overhead_s=attempt.overhead_s,
        own_s=attempt.own_s,
        own_busy_s=0.0 if own is None else own.busy_s,
        own_tasks=0 if own is None else own.rollouts + own.episodes,
        deadline_s=math.inf if attempt.deadline_s is None else attempt.deadline_s,
        open_rounds=attempt.open_rounds,
    )


def settle_held(round_index: int, held_s: float, basis: CostBasis) -> tuple[LedgerLine, ...]:
    """Return the bill of a learner's time outside any round."""
    return ledger_lines(held_items(held_s, basis), round_index=round_index, attempt=0)


def cold_ping_lines(round_index: int, num: int, basis: CostBasis) -> tuple[LedgerLine, ...]:
    """Return the bill of environments that pings found gone and restarted."""
    item = BillItem("pings", num, "request", basis.cold_ping_usd)
    return ledger_lines([item], round_index=round_index, attempt=0)


def worst_outcome(num_invocations: int, *, timeout_s: float) -> LaunchOutcome:
    """Return the bill of invocations with an unknown end: two full executions each."""
    executions = EXECUTIONS_PER_TASK * num_invocations
    slowest_s = EXECUTIONS_PER_TASK * timeout_s if num_invocations else 0.0
    return LaunchOutcome(
        counts=LaunchCounts(
            requested=num_invocations,
            succeeded=0,
            failed=0,
            reissued=0,
            throttled=0,
            unknown=num_invocations,
        ),
        requests=executions,
        durations_s=(timeout_s,) * executions,
        slowest_sample_s=slowest_s,
        slowest_evaluation_s=0.0,
    )


def assumptions(
    basis: CostBasis,
    clock: Clock,
    learner_instance: str,
    *,
    warm: Warm = "provisioned",
    open_rounds: int = 1,
    compared: bool = True,
) -> tuple[str, ...]:
    """Return the assumptions of a bill and of the comparison with servers, in words."""
    prices, *projected = projection_assumptions(basis)
    measured = (
        "Learner, cache, scaler and provisioned concurrency are billed for the wall time in which "
        "learners hold the job, from lease to end.",
        "Cache and scaler are shared: when a round is billed, each leased job pays an equal part "
        "of their price.",
        "Actor durations are the billed durations Lambda reports.",
    )
    overlap = (
        f"{open_rounds} rounds are open at a time: each is billed its share of that time, and "
        "never less than the learner's.",
    )
    return (
        prices,
        f"The learner is billed as one {learner_instance}."
        if basis.learner_usd_per_s
        else "The learner is your own program, which is not billed.",
        *(measured if clock == "wall" else projected),
        *(overlap if clock == "projected" and open_rounds > 1 else ()),
        "An invocation whose end is unknown is billed as two executions up to the time-out.",
        *_warm_assumptions(basis, warm),
        "Not included: container registry, logs, artifacts, the learner's disk, public IPv4 "
        "addresses, network transfer and endpoints, free tiers, and discounts that the prices do "
        "not have.",
        *(SERVERFUL_ASSUMPTIONS if compared else ()),
        *(ONE_SERVER_ASSUMPTIONS if basis.prices.server_usd_per_hour else ()),
    )


def _warm_assumptions(basis: CostBasis, warm: Warm) -> tuple[str, ...]:
    provisioned = (
        "Warm environments are as many as a round can still need; the number falls at most every "
        "five minutes.",
        "Provisioned concurrency is billed by the second, although AWS rounds the time it is "
        "configured up to 5 minutes.",
    )
    pinged = (
        f"Idle environments are pinged every {basis.ping_every_s:g} s. All environments that a "
        "round can still need are billed as if pinged, and none is assumed to be removed "
        "meanwhile.",
    )
    dropped = ("Environments that a round leaves idle are assumed to be removed.",)
    return {
        "provisioned": provisioned,
        "reuse": pinged,
        "auto": (*pinged, *provisioned),
        "none": dropped,
    }[warm]


def ledger_lines(
    items: Iterable[BillItem], *, round_index: int, attempt: int
) -> tuple[LedgerLine, ...]:
    """Return one line per non-zero item."""
    return tuple(
        LedgerLine(
            round=round_index,
            attempt=attempt,
            item=item.item,
            quantity=item.quantity,
            unit=item.unit,
            unit_price_usd=item.unit_price_usd,
            amount_usd=item.amount_usd,
        )
        for item in items
        if item.quantity > 0
    )
