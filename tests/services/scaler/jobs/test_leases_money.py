"""The cost of a lease's time, and the end of a job by it."""

from dataclasses import replace

import pytest

from services.scaler.book.book import Book
from services.scaler.book.records import Change, JobRecord
from services.scaler.jobs.leases import LeaseService
from services.scaler.money.account import NO_TIMES, unbilled_s
from tests.services.scaler.jobs.leasing import (
    SPENDING,
    Clock,
    add_job,
    claimed,
    lease_service,
    set_status,
    stored,
)


async def test_a_job_taken_over_after_the_clock_was_set_back_pays_for_no_time_that_never_was(
    book: Book, desk: LeaseService, clock: Clock
) -> None:
    await add_job(book, "job-a")
    claimed(await desk.claim("l1"))
    clock.now -= 900

    def end_a_round(record: JobRecord) -> Change:
        return Change(record=SPENDING.end_round(record, clock.now, NO_TIMES)[0])

    await book.change("job-a", end_a_round)
    clock.now += 2
    claimed(await desk.claim("l2"))
    record = stored(book, "job-a")
    assert unbilled_s(record, clock.now) == 2


async def test_time_nobody_trained_is_not_held_against_the_job(
    book: Book, desk: LeaseService, clock: Clock
) -> None:
    await add_job(book, "a")
    await desk.claim("one")
    clock.now += 1000  # the lease ran out after 30
    await desk.claim("two")
    record = stored(book, "a")
    assert (record.held_carry_s, record.accounted_until) == (30.0, clock.now)


@pytest.mark.parametrize(("away_s", "nobodys_s"), [(500.0, 0.0), (629.0, 0.0), (6 * 3600, 20970.0)])
async def test_while_the_scaler_was_away_time_counts_until_all_was_switched_off(
    book: Book, desk: LeaseService, clock: Clock, away_s: float, nobodys_s: float
) -> None:
    await add_job(book, "a")
    lease = claimed(await desk.claim("one"))
    clock.now += away_s  # the lease ran out after 30 s, the switch acts 600 s later
    await desk.extend_all()
    await desk.heartbeat(lease.lease_id)
    record = stored(book, "a")
    assert unbilled_s(record, clock.now) == away_s - nobodys_s
    clock.now += 10
    assert unbilled_s(record, clock.now) == away_s - nobodys_s + 10


async def test_a_learner_that_holds_a_job_beyond_its_budget_is_told_to_stop(
    book: Book, desk: LeaseService, clock: Clock
) -> None:
    await add_job(book, "a", budget_usd=2.0)
    lease = claimed(await desk.claim("one"))
    for _ in range(99):
        clock.now += 20
        assert (await desk.heartbeat(lease.lease_id)).stop is None
    clock.now += 20
    assert (await desk.heartbeat(lease.lease_id)).stop == "budget"


async def test_a_job_that_learner_after_learner_loses_ends_with_its_budget(
    book: Book, desk: LeaseService, clock: Clock
) -> None:
    await add_job(book, "a", budget_usd=0.2)
    learners = 0
    while (lease := await desk.claim("one")) is not None:
        learners += 1
        clock.now += 20
        await desk.heartbeat(lease.lease_id)
        clock.now += 1000  # dead; its lease ran out after 30
    assert learners == 4
    record = stored(book, "a")
    assert (record.job.status, record.job.stop_reason) == ("stopped", "budget")
    assert record.settled_usd == pytest.approx(0.2)
    assert record.lease is None


async def test_what_a_projection_bills_does_not_grow_with_time(book: Book, clock: Clock) -> None:
    spending = replace(SPENDING, clock="projected")
    desk = lease_service(book, clock, spending)
    await add_job(book, "a", budget_usd=2.0)
    lease = claimed(await desk.claim("one"))
    for _ in range(200):
        clock.now += 20
        assert (await desk.heartbeat(lease.lease_id)).stop is None


async def test_a_job_that_has_no_money_left_stops_for_its_user_if_that_asked_before(
    book: Book, desk: LeaseService, clock: Clock
) -> None:
    await add_job(book, "a", budget_usd=0.02)  # 20 s
    lease = claimed(await desk.claim("one"))
    clock.now += 25
    assert (await desk.heartbeat(lease.lease_id)).stop == "budget"
    await set_status(book, "a", "stopping")
    assert (await desk.heartbeat(lease.lease_id)).stop == "user"


async def test_what_a_learner_that_gave_up_has_cost_counts_with_what_the_next_one_costs(
    book: Book, desk: LeaseService, clock: Clock
) -> None:
    await add_job(book, "a", budget_usd=0.05)  # 50 s
    first = claimed(await desk.claim("one"))
    clock.now += 25
    await desk.give_up(first.lease_id)
    clock.now += 1000
    second = claimed(await desk.claim("two"))
    clock.now += 24
    assert (await desk.heartbeat(second.lease_id)).stop is None
    clock.now += 1
    assert (await desk.heartbeat(second.lease_id)).stop == "budget"
    await desk.give_up(second.lease_id)
    assert await desk.claim("three") is None
    record = stored(book, "a")
    assert (record.job.status, record.job.stop_reason) == ("stopped", "budget")
