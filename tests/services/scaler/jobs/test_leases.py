"""Who trains what: claiming, renewing, losing and giving up, on a clock of our own."""

from dataclasses import replace

import pytest

from services.scaler.book.book import Book
from services.scaler.jobs.leases import LeaseService
from services.scaler.refusals import ApiError
from shared.contracts.leases import hash_of_lease
from tests.services.scaler.jobs.leasing import (
    Clock,
    add_job,
    claimed,
    set_status,
    stored,
)


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


async def test_heartbeats_keep_a_job(book: Book, desk: LeaseService, clock: Clock) -> None:
    await add_job(book, "a")
    lease = claimed(await desk.claim("one"))
    for _ in range(10):
        clock.now += 20
        assert (await desk.heartbeat(lease.lease_id)).expires_in_s == 30
        assert await desk.claim("two") is None


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
