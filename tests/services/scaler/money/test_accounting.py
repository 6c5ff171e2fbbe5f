"""A job's account: whom the seconds that pass are billed to, against sums written out."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scaler.book.attempts import AttemptKey, OpenAttempt
from services.scaler.book.records import JobRecord
from services.scaler.money.account import (
    NO_TIMES,
    LearnerTimes,
    land,
    started_by_pings,
    stop_holding,
    unbilled_s,
)
from services.scaler.money.accounting import Spending
from services.scaler.money.ledger import NOTHING_LAUNCHED, Clock, worst_outcome
from shared.contracts.billing import LedgerLine
from shared.contracts.learner_task import LearnerTask
from shared.contracts.rounds import OwnWork
from shared.money.costs import SPOT_SHARE
from tests.services.scaler.money.test_accounting_spending import NOW, held
from tests.services.scaler.money.test_budget import basis

BASIS = basis()
WALL = Spending(basis=BASIS, clock="wall")


def attempt(round_index: int, **changes: object) -> OpenAttempt:
    fields: dict[str, object] = {
        "round": round_index,
        "attempt": 0,
        "lease_id": "lease",
        "num_invocations": 4,
        "reserved_usd": 0.5,
        "warm": 0,
        **changes,
    }
    return OpenAttempt.model_validate(fields)


def ended(
    record: JobRecord,
    now: float,
    *,
    learner_s: float = 0.0,
    overhead_s: float = 0.0,
    through: int | None = None,
    clock: Clock = "wall",
) -> tuple[JobRecord, float]:
    """The record after the round, and the seconds that were billed to none."""
    after, lines = Spending(basis=BASIS, clock=clock).end_round(
        record, now, LearnerTimes(learner_s=learner_s, overhead_s=overhead_s), through=through
    )
    assert after.settled_usd - record.settled_usd == pytest.approx(
        sum(line.amount_usd for line in lines)
    )
    return after, sum(line.quantity for line in lines if line.item == "learner")


def seconds(record: JobRecord) -> list[float | None]:
    return [a.held_s for a in record.open_attempts]


def test_what_passes_is_billed_to_the_oldest_round_that_ends() -> None:
    record = held(attempt(3), attempt(4), attempt(5), carry_s=10.0)
    record, alone_s = ended(record, NOW + 7, learner_s=2.0, overhead_s=0.25, through=4)
    assert (seconds(record), alone_s) == ([17.0, 0.0, None], 0.0)
    assert [a.learner_s for a in record.open_attempts] == [0.0, 2.0, None]
    assert [a.overhead_s for a in record.open_attempts] == [0.0, 0.25, 0.0]
    record, alone_s = ended(record, NOW + 12, learner_s=3.0)
    assert (seconds(record), alone_s) == ([17.0, 0.0, 5.0], 0.0)
    assert [a.learner_s for a in record.open_attempts] == [0.0, 2.0, 3.0]


def test_the_learners_work_counts_once_where_two_attempts_of_a_round_end() -> None:
    own = OwnWork(rollouts=2, episodes=0, busy_s=30.0, elapsed_s=15.0)
    record = held(*(attempt(3, attempt=n, outcome=NOTHING_LAUNCHED) for n in (0, 1)))
    record, _ = WALL.end_round(
        record, NOW + 20, LearnerTimes(learner_s=2.0, own_s=15.0, own_work=own)
    )
    # The learner's time, and the mean of two tasks.
    assert record.serverful_wall_s == pytest.approx(2.0 + 15.0)


def test_while_rounds_are_under_way_and_none_ends_time_waits_for_the_next_that_does() -> None:
    record, alone_s = ended(held(attempt(3)), NOW + 7, through=2)
    assert (seconds(record), alone_s, record.held_carry_s) == ([None], 0.0, 7.0)
    record, _ = ended(record, NOW + 9, through=3)
    assert (seconds(record), record.held_carry_s) == ([9.0], 0.0)


@pytest.mark.parametrize(("clock", "billed_s"), [("wall", 17.0), ("projected", 0.0)])
def test_time_outside_any_round_is_billed_at_once_where_time_passes(
    clock: Clock, billed_s: float
) -> None:
    over = attempt(3, learner_s=1.0, held_s=2.0)
    record, alone_s = ended(held(over, carry_s=10.0), NOW + 7, clock=clock)
    assert (seconds(record), alone_s) == ([2.0], billed_s)
    assert (record.accounted_until, record.held_carry_s) == (NOW + 7, 0.0)


def test_a_clock_that_is_set_back_bills_nothing_and_takes_nothing_back() -> None:
    record = held(attempt(3), carry_s=10.0)
    assert unbilled_s(record, NOW - 60) == 10.0
    assert stop_holding(record, NOW - 60).held_carry_s == 10.0
    record, _ = ended(record, NOW - 60)
    assert seconds(record) == [10.0]
    assert unbilled_s(record, NOW - 50) == 10.0


def test_between_two_learners_no_time_counts() -> None:
    record = stop_holding(held(), NOW + 30).model_copy(update={"lease": None})
    assert unbilled_s(record, NOW + 500) == 30.0
    record = WALL.begin_holding(record, NOW + 1000)
    assert unbilled_s(record, NOW + 1005) == 35.0
    assert stop_holding(record, NOW + 1005).held_carry_s == 35.0


def test_a_learner_that_was_lost_held_the_job_to_the_end_of_its_lease() -> None:
    record = held()
    assert unbilled_s(record, NOW + 36_000 + 500) == 36_000.0
    assert WALL.begin_holding(record, NOW + 36_000 + 500).held_carry_s == 36_000.0


STEPS = st.lists(
    st.one_of(
        st.just(("open", 0)),
        st.tuples(st.just("end"), st.integers(0, 8)),
        st.tuples(st.just("wait"), st.integers(0, 100)),
        st.tuples(st.just("lose"), st.integers(0, 100)),
    ),
    max_size=30,
)


@given(steps=STEPS)
def test_every_second_a_learner_holds_the_job_is_billed_once(
    steps: list[tuple[str, int]],
) -> None:
    record, now, held_s, alone_s, opened = held(), NOW, 0, 0.0, 0
    for what, number in steps:
        if what == "open":
            new = attempt(opened)
            opened += 1
            record = record.model_copy(update={"open_attempts": (*record.open_attempts, new)})
        elif what == "end":
            record, outside_s = ended(record, now, through=number)
            alone_s += outside_s
        else:
            held_s += number
            now += number
            if what == "lose":
                freed = stop_holding(record, now).model_copy(update={"lease": None})
                now += 1000
                held_again = WALL.begin_holding(freed, now)
                record = held_again.model_copy(update={"lease": record.lease})
    record, outside_s = ended(record, now)
    assert sum(s or 0.0 for s in seconds(record)) + alone_s + outside_s == held_s
    assert unbilled_s(record, now) == 0.0


def test_only_the_launch_that_landed_has_its_outcome_and_the_first_one_stays() -> None:
    again = attempt(3, attempt=1)
    record = held(attempt(3), again, attempt(3, lease_id="another"), attempt(4))
    first, second = worst_outcome(4, timeout_s=60.0), NOTHING_LAUNCHED
    landed = land(record, AttemptKey("job", 3, 1, "lease"), first)
    assert [a.outcome for a in landed.open_attempts] == [None, first, None, None]
    assert land(landed, AttemptKey("job", 3, 1, "lease"), second) == landed
    assert land(landed, AttemptKey("other", 3, 0, "lease"), second) == landed


def test_a_bill_takes_the_place_of_what_was_set_aside() -> None:
    known: dict[str, Any] = {"outcome": worst_outcome(4, timeout_s=60.0), "learner_s": 1.0}
    ready, waiting = attempt(3, held_s=7.0, **known), attempt(4, **known)
    record = held(ready, waiting, settled_usd=0.25)
    after, lines = WALL.settle_ready(record)
    billed_usd = 7 * BASIS.usd_per_s + 4 * 2 * (60 * 0.0000166667 + 0.0000002)
    assert sum(line.amount_usd for line in lines) == pytest.approx(billed_usd)
    assert after.open_attempts == (waiting,)
    assert after.settled_usd == pytest.approx(0.25 + billed_usd)
    assert after.job.spent_usd == after.settled_usd
    assert after.committed_usd == pytest.approx(0.25 + billed_usd + 0.5)
    assert after.num_lines == record.num_lines + len(lines)
    # Two executions to the time-out, then the learner's second.
    assert after.projected_wall_s == pytest.approx(121.0)
    assert after.serverful_wall_s == pytest.approx(2 * 60 * 1024 / 1769 + 1.0)


def test_the_end_of_a_job_bills_its_time_and_closes_its_clock() -> None:
    started = held(attempt(3, outcome=NOTHING_LAUNCHED), carry_s=10.0).model_copy(
        update={"wall_started_at": NOW - 100, "wall_used_s": 1000.0}
    )
    record, lines = WALL.end_job(started, NOW + 7)
    assert sum(line.amount_usd for line in lines) == pytest.approx(17 * BASIS.usd_per_s)
    assert record.open_attempts == ()
    assert (record.wall_used_s, record.wall_started_at) == (1107.0, None)
    assert record.projected_wall_s == 0.0
    assert (record.accounted_until, record.held_carry_s) == (None, 0.0)
    assert WALL.end_job(record, NOW + 500) == (record, ())


def test_a_job_ends_in_order_on_a_clock_that_was_set_back() -> None:
    launched = attempt(3, outcome=worst_outcome(4, timeout_s=60.0))
    started = held(launched).model_copy(
        update={"wall_started_at": NOW - 100, "wall_used_s": 1000.0}
    )
    given_up = stop_holding(started, NOW - 200).model_copy(update={"lease": None})
    for record in (started, given_up):
        after, lines = WALL.end_job(record, NOW - 200)
        assert (after.open_attempts, after.reserved_usd) == ((), 0.0)
        assert {line.item for line in lines} == {"lambda_duration", "lambda_requests"}
        assert after.wall_used_s == 1000.0


def test_a_job_that_ends_while_nobody_has_it_is_billed_what_earlier_learners_took() -> None:
    free = stop_holding(held(), NOW + 30).model_copy(update={"lease": None})
    record, lines = WALL.end_job(free, NOW + 500)
    assert sum(line.amount_usd for line in lines) == pytest.approx(30 * BASIS.usd_per_s)
    assert (record.wall_used_s, record.held_carry_s) == (0.0, 0.0)


def warm_gb_s(lines: Iterable[LedgerLine]) -> float:
    return sum(line.quantity for line in lines if line.item == "provisioned_concurrency")


@pytest.mark.parametrize(("kept", "billed"), [(40, 40), (5, 5), (90, 50), (None, 50)])
def test_a_round_is_billed_what_was_kept_warm_when_it_was_planned(
    kept: int | None, billed: int
) -> None:
    closed = attempt(
        3, outcome=NOTHING_LAUNCHED, num_invocations=0, learner_s=1.0, held_s=7.0, kept_warm=kept
    )
    record = held(closed).model_copy(update={"warm": 20})
    _, lines = Spending(basis=basis(provisioned=50), clock="wall").settle_ready(record)
    assert warm_gb_s(lines) == pytest.approx(billed * 7)


@pytest.mark.parametrize(("clock", "since"), [("wall", NOW), ("projected", 12.5)])
def test_whoever_takes_a_job_pays_for_what_is_kept_warm_for_it(clock: Clock, since: float) -> None:
    free = held().model_copy(update={"accounted_until": None, "projected_wall_s": 12.5})
    taken = Spending(basis=BASIS, clock=clock).begin_holding(free, NOW)
    assert (taken.warm, taken.warm_since) == (64, since)
    less = free.model_copy(update={"warm": 9, "warm_since": 3.0})
    assert Spending(basis=BASIS, clock=clock).begin_holding(less, NOW).warm_since == 3.0


@pytest.mark.parametrize(("warm", "billed"), [(20, 20), (90, 50), (None, 50)])
def test_time_outside_any_round_is_billed_what_is_kept_warm_then(
    warm: int | None, billed: int
) -> None:
    record = held().model_copy(update={"warm": warm, "environments": 30})
    after, lines = Spending(basis=basis(provisioned=50), clock="wall").end_job(record, NOW + 7)
    assert warm_gb_s(lines) == pytest.approx(billed * 7)
    # Its environments are let go of: what it keeps when it is resumed is decided anew.
    assert (after.warm, after.environments) == (None, 0)


def pinging(record: JobRecord, *, environments: int) -> JobRecord:
    """The job relying on reuse, and told of environments that pings found gone."""
    spec = record.job.spec.model_copy(update={"warm": "reuse"})
    job = record.job.model_copy(update={"spec": spec})
    change = started_by_pings(record.model_copy(update={"job": job}), num=environments)
    assert change is not None
    return change.record


def test_environments_that_pings_started_are_a_line_of_the_next_bill() -> None:
    cold = Spending(basis=replace(BASIS, cold_start_s=2.0), clock="wall")
    record = pinging(held(attempt(3, outcome=NOTHING_LAUNCHED)), environments=5)
    assert record.cold_pings == 5
    record, lines = cold.end_round(record, NOW + 7, LearnerTimes(learner_s=2.0))
    (line,) = (line for line in lines if line.item == "pings" and line.quantity == 5)
    gb_s = 2.0 * BASIS.memory_gb
    assert line.round == 3
    assert line.amount_usd == pytest.approx(5 * gb_s * BASIS.prices.lambda_usd_per_gb_s)
    assert record.settled_usd == pytest.approx(sum(each.amount_usd for each in lines))
    assert (record.cold_pings, record.warm_use.waits) == (0, 0.0)


def test_the_last_of_them_are_billed_when_the_job_ends() -> None:
    cold = Spending(basis=replace(BASIS, cold_start_s=2.0), clock="wall")
    record, lines = cold.end_job(pinging(held(), environments=3), NOW + 1)
    assert [line.quantity for line in lines if line.quantity == 3] == [3]
    assert record.cold_pings == 0
    assert record.settled_usd == pytest.approx(sum(each.amount_usd for each in lines))


def test_a_job_pays_for_no_more_than_it_keeps_and_none_where_it_keeps_none() -> None:
    record = pinging(held(), environments=10_000)
    assert record.cold_pings == record.job.spec.actors.max
    assert started_by_pings(held(), num=5) is None


def test_jobs_side_by_side_pay_for_cache_and_scaler_once_and_each_for_its_learner() -> None:
    def paid(num_held: int, clock: Clock = "wall") -> dict[str, float]:
        spending = Spending(basis=BASIS, clock=clock, num_held=lambda: num_held)
        _, lines = spending.end_round(held(), NOW + 7, NO_TIMES)
        return {line.item: line.amount_usd for line in lines}

    alone, shared = paid(1), paid(4)
    assert {"learner", "cache", "scaler"} <= alone.keys()
    for item, usd in alone.items():
        parts = 4 if item in ("cache", "scaler") else 1
        assert shared[item] == pytest.approx(usd / parts)
    assert paid(0) == alone, "a job that ends is held by nobody any more"


def test_a_budget_is_kept_as_if_a_job_paid_the_whole() -> None:
    record = held(carry_s=10.0)
    shared = Spending(basis=BASIS, clock="wall", num_held=lambda: 40)
    assert shared.owed_usd(record, NOW + 7) == WALL.owed_usd(record, NOW + 7)


def test_a_learner_of_another_size_or_on_spot_is_billed_as_what_it_is() -> None:
    cpu = BASIS.with_learner("cpu")
    larger = BASIS.with_learner("cpu", LearnerTask(cpu=4, memory_mb=8192))
    usd_per_hour = 4 * BASIS.prices.fargate_usd_per_vcpu_hour
    usd_per_hour += 8 * BASIS.prices.fargate_usd_per_gb_hour
    assert larger.learner_usd_per_s == pytest.approx(usd_per_hour / 3600)
    spot = BASIS.with_learner("cpu", LearnerTask(spot=True))
    assert spot.learner_usd_per_s == pytest.approx(SPOT_SHARE * cpu.learner_usd_per_s)
    # Jobs with `auto` may turn out to have a GPU, which has one size.
    assert BASIS.with_learner("gpu", LearnerTask(cpu=4)) == BASIS
