"""Who trains what: claiming, renewing, losing and giving up, on a clock of our own."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from services.scaler.book.book import Book
from services.scaler.book.records import Change, JobRecord
from services.scaler.book.sqlite import SqliteTable
from services.scaler.jobs.leases import LeaseService
from services.scaler.money.account import unbilled_s
from services.scaler.money.accounting import Spending
from services.scaler.refusals import ApiError
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, JobStatus
from shared.contracts.learner_kind import LearnerKind
from shared.contracts.leases import Lease, hash_of_lease
from shared.contracts.stop_rule import StopRule
from shared.money.costs import CostBasis
from shared.money.prices import AWS_US_EAST_1_2026_11
from tests.services.scaler.lambda_endpoint import HOPPER

SPENDING = Spending(
    basis=CostBasis(
        prices=AWS_US_EAST_1_2026_11,
        learner_usd_per_s=1e-3,
        cpu_learner_usd_per_s=1e-4,
        cache_usd_per_s=0.0,
        scaler_usd_per_s=0.0,
        memory_mb=1024,
        function_timeout_s=60.0,
        provisioned=0,
    ),
    clock="wall",
)
"""A dollar every thousand seconds."""


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    opened = Book(SqliteTable(tmp_path / "jobs.sqlite3"), now=lambda: 0.0)
    yield opened
    opened.close()


def lease_service(book: Book, clock: Clock, spending: Spending) -> LeaseService:
    return LeaseService(
        book,
        ttl_s=30.0,
        heartbeat_every_s=5.0,
        now=clock,
        spending=spending,
        change=book.change,
    )


@pytest.fixture
def desk(book: Book, clock: Clock) -> LeaseService:
    return lease_service(book, clock, SPENDING)


async def add_job(
    book: Book, job_id: str, *, budget_usd: float = 100.0, learner: LearnerKind = "gpu"
) -> None:
    job = Job(
        job_id=job_id,
        spec=JobSpec(stop=StopRule(budget_usd=budget_usd)),
        environment=HOPPER,
        learner=learner,
        status="queued",
        created_at=0.0,
    )
    await book.create(JobRecord(job=job))


def stored(book: Book, job_id: str) -> JobRecord:
    record = book.job(job_id)
    assert record is not None
    return record


async def set_status(book: Book, job_id: str, status: JobStatus) -> None:
    def change(record: JobRecord) -> Change:
        job = record.job.model_copy(update={"status": status})
        return Change(record=record.model_copy(update={"job": job}))

    await book.change(job_id, change)


def claimed(lease: Lease | None) -> Lease:
    assert lease is not None
    return lease


async def test_jobs_are_leased_oldest_first_and_each_once(book: Book, desk: LeaseService) -> None:
    for job_id in ("b", "a"):
        await add_job(book, job_id)
    assert [claimed(await desk.claim(name)).job.job_id for name in ("l1", "l2")] == ["b", "a"]
    assert await desk.claim("l3") is None


async def test_a_learner_gets_jobs_of_its_kind_only_and_one_of_no_kind_gets_any(
    book: Book, desk: LeaseService, clock: Clock
) -> None:
    await add_job(book, "a")
    await add_job(book, "b", learner="cpu")
    await add_job(book, "c", learner="cpu")
    assert claimed(await desk.claim("cores", "cpu")).job.job_id == "b"
    assert claimed(await desk.claim("gpu", "gpu")).job.job_id == "a"
    assert await desk.claim("another", "gpu") is None
    assert claimed(await desk.claim("any")).job.job_id == "c"
    clock.now += 31.0
    # What one of them has lost goes to its kind, too.
    assert claimed(await desk.claim("another", "gpu")).job.job_id == "a"
    assert await desk.claim("third", "gpu") is None


async def test_a_silent_learner_loses_its_job_to_the_next(
    book: Book, desk: LeaseService, clock: Clock
) -> None:
    await add_job(book, "a")
    first = claimed(await desk.claim("one"))
    clock.now += 29.9
    assert await desk.claim("two") is None
    clock.now += 0.2
    second = claimed(await desk.claim("two"))
    assert second.job.job_id == "a"
    assert second.lease_id != first.lease_id
    with pytest.raises(Exception, match="no lease"):
        await desk.heartbeat(first.lease_id)
    assert (await desk.heartbeat(second.lease_id)).stop is None


async def test_a_lease_is_named_by_its_hash_in_logs_and_refusals(
    book: Book, desk: LeaseService, caplog: pytest.LogCaptureFixture
) -> None:
    await add_job(book, "a")
    with caplog.at_level("INFO"):
        lease_id = claimed(await desk.claim("one")).lease_id
        await desk.give_up(lease_id)
    assert [getattr(r, "lease", None) for r in caplog.records] == [hash_of_lease(lease_id)] * 2
    with pytest.raises(ApiError) as refused:
        stored(book, "a").held_by(lease_id)
    assert hash_of_lease(lease_id) in refused.value.detail
    assert lease_id not in refused.value.detail


async def test_a_learner_that_was_started_again_has_its_job_at_once(
    book: Book, desk: LeaseService
) -> None:
    for job_id in ("a", "b"):
        await add_job(book, job_id)
    before = claimed(await desk.claim("one"))
    claimed(await desk.claim("two"))
    again = claimed(await desk.claim("one"))
    assert (again.job.job_id, again.job.status) == (before.job.job_id, "running")
    with pytest.raises(Exception, match="no lease"):
        await desk.heartbeat(before.lease_id)
    assert await desk.claim("three") is None


async def test_a_clock_that_is_corrected_takes_no_learners_job(
    book: Book, desk: LeaseService, clock: Clock
) -> None:
    await add_job(book, "job-a")
    claimed(await desk.claim("l1"))
    clock.now -= 5
    assert await desk.claim("l2") is None


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_lost_learners_job_does_not_wait_for_a_clock_that_was_set_back(
    book: Book, desk: LeaseService, clock: Clock, restarted: bool
) -> None:
    await add_job(book, "job-a")
    claimed(await desk.claim("l1"))
    clock.now -= 900
    if restarted:
        await desk.extend_all()
        assert await desk.claim("l2") is None
        clock.now += 30
    assert claimed(await desk.claim("l2")).job.job_id == "job-a"


async def test_a_job_taken_over_after_the_clock_was_set_back_pays_for_no_time_that_never_was(
    book: Book, desk: LeaseService, clock: Clock
) -> None:
    await add_job(book, "job-a")
    claimed(await desk.claim("l1"))
    clock.now -= 900

    def end_a_round(record: JobRecord) -> Change:
        return Change(record=SPENDING.end_round(record, clock.now)[0])

    await book.change("job-a", end_a_round)
    clock.now += 2
    claimed(await desk.claim("l2"))
    record = stored(book, "job-a")
    assert unbilled_s(record, clock.now) == 2


async def test_heartbeats_keep_a_job(book: Book, desk: LeaseService, clock: Clock) -> None:
    await add_job(book, "a")
    lease = claimed(await desk.claim("one"))
    for _ in range(10):
        clock.now += 20
        assert (await desk.heartbeat(lease.lease_id)).expires_in_s == 30
        assert await desk.claim("two") is None


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


async def test_a_job_that_loses_learner_after_learner_without_a_round_fails(
    book: Book, desk: LeaseService, clock: Clock
) -> None:
    await add_job(book, "a")
    handed_back = claimed(await desk.claim("one"))
    await desk.give_up(handed_back.lease_id)  # that learner was not lost
    learners = 0
    while await desk.claim("one") is not None:
        learners += 1
        clock.now += 100
    assert learners == 5
    record = stored(book, "a")
    assert (record.job.status, record.job.stop_reason) == ("failed", "error")
    assert "5 learners in a row" in str(record.job.error)
    assert record.lease is None


async def test_a_job_that_was_told_to_stop_and_loses_all_its_learners_is_stopped(
    book: Book, desk: LeaseService, clock: Clock
) -> None:
    await add_job(book, "a")
    claimed(await desk.claim("one"))
    await set_status(book, "a", "stopping")
    while await desk.claim("one") is not None:
        clock.now += 100
    record = stored(book, "a")
    assert (record.job.status, record.job.stop_reason) == ("stopped", "user")


async def test_what_a_projection_bills_does_not_grow_with_time(book: Book, clock: Clock) -> None:
    spending = replace(SPENDING, clock="projected")
    desk = lease_service(book, clock, spending)
    await add_job(book, "a", budget_usd=2.0)
    lease = claimed(await desk.claim("one"))
    for _ in range(200):
        clock.now += 20
        assert (await desk.heartbeat(lease.lease_id)).stop is None


async def test_a_restarted_scaler_gives_learners_a_full_term(
    book: Book, desk: LeaseService, clock: Clock
) -> None:
    await add_job(book, "a")
    lease = claimed(await desk.claim("one"))
    clock.now += 500
    await desk.extend_all()
    assert await desk.claim("two") is None
    assert (await desk.heartbeat(lease.lease_id)).expires_in_s == 30


async def test_a_stop_outlasts_the_learner_that_was_to_hear_of_it(
    book: Book, desk: LeaseService, clock: Clock
) -> None:
    await add_job(book, "a")
    deaf = claimed(await desk.claim("one"))
    await set_status(book, "a", "stopping")
    assert desk.next_expiry_s() == 30
    clock.now += 500
    await desk.extend_all()
    assert await desk.claim("two") is None
    await desk.give_up(deaf.lease_id)
    given_up = stored(book, "a")
    assert given_up.job.status == "stopping"
    clock.now += 7
    next_one = claimed(await desk.claim("two"))
    assert (next_one.job.status, next_one.job.started_at) == ("stopping", deaf.job.started_at)
    assert (next_one.expires_in_s, next_one.heartbeat_every_s) == (30, 5)
    assert (await desk.heartbeat(next_one.lease_id)).stop == "user"


async def test_a_job_that_has_no_money_left_stops_for_its_user_if_that_asked_before(
    book: Book, desk: LeaseService, clock: Clock
) -> None:
    await add_job(book, "a", budget_usd=0.02)  # 20 s
    lease = claimed(await desk.claim("one"))
    clock.now += 25
    assert (await desk.heartbeat(lease.lease_id)).stop == "budget"
    await set_status(book, "a", "stopping")
    assert (await desk.heartbeat(lease.lease_id)).stop == "user"


async def test_a_job_that_was_taken_or_has_ended_since_it_was_listed_is_not_leased(
    book: Book, desk: LeaseService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job_id in ("taken", "ended", "free"):
        await add_job(book, job_id)
    listed = book.with_status({"queued"})
    assert claimed(await desk.claim("one")).job.job_id == "taken"
    await set_status(book, "ended", "stopped")
    monkeypatch.setattr(book, "with_status", lambda statuses: listed)
    assert claimed(await desk.claim("two")).job.job_id == "free"
    assert await desk.claim("three") is None
    ended = stored(book, "ended")
    assert (ended.job.status, ended.lease) == ("stopped", None)


async def test_who_waits_looks_again_when_the_first_of_all_leases_has_run_out(
    book: Book, desk: LeaseService, clock: Clock
) -> None:
    assert desk.next_expiry_s() is None
    for job_id in ("a", "b", "c"):
        await add_job(book, job_id)
    first, second = claimed(await desk.claim("one")), claimed(await desk.claim("two"))
    clock.now += 10
    await desk.heartbeat(first.lease_id)
    assert desk.next_expiry_s() == 20
    await desk.give_up(second.lease_id)
    assert desk.next_expiry_s() == 30
    clock.now += 31
    assert desk.next_expiry_s() == 0


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


async def test_an_external_job_is_leased_by_its_id_and_by_no_learner(
    book: Book, desk: LeaseService
) -> None:
    await add_job(book, "external-1", learner="external")
    assert await desk.claim("learner-a") is None
    assert await desk.claim("learner-a", "gpu") is None
    desk = replace(desk, cache_url="redis://:secret@cache:6379/0")
    lease = await desk.claim("pool-a", job_id="external-1")
    assert lease is not None
    assert (lease.job.job_id, lease.job.status) == ("external-1", "running")
    assert lease.cache_url == "redis://:secret@cache:6379/0"
    assert await desk.claim("pool-b", job_id="external-1") is None  # it is held


async def test_other_jobs_are_not_leased_by_their_ids_and_tell_of_no_cache(
    book: Book, desk: LeaseService
) -> None:
    await add_job(book, "hopper-1")
    desk = replace(desk, cache_url="redis://:secret@cache:6379/0")
    assert await desk.claim("pool-a", job_id="hopper-1") is None
    assert await desk.claim("pool-a", job_id="nobody-1") is None
    lease = await desk.claim("learner-a")
    assert lease is not None
    assert lease.cache_url is None


async def test_an_external_job_that_is_given_up_waits_anew_for_its_client(
    book: Book, desk: LeaseService, clock: Clock
) -> None:
    await add_job(book, "external-1", learner="external")
    lease = await desk.claim("pool-a", job_id="external-1")
    assert lease is not None
    clock.now += 500.0
    await desk.give_up(lease.lease_id)
    assert stored(book, "external-1").queued_at == clock.now
    assert await desk.claim("pool-b", job_id="external-1") is not None
