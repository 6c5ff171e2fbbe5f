"""Every store by what it promises: whole changes, conflicts seen, nothing lost on reopening."""

import concurrent.futures
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.scaler.store.base import (
    Change,
    IdempotencyEntry,
    JobRecord,
    Store,
    VersionConflictError,
)
from services.scaler.store.changing import change_job, delete_job
from services.scaler.store.dynamodb import DynamoDbStore
from services.scaler.store.sqlite import SqliteStore
from shared.contracts.billing import LedgerLine
from shared.contracts.jobs import JobStatus
from tests.services.scaler.running import result
from tests.services.scaler.store.records import (
    REGION,
    line,
    make_table,
    open_attempt,
    record,
    round_entry,
    with_lease,
    with_status,
)

OpenStore = Callable[[], Store]


@pytest.fixture(params=["sqlite", "dynamodb"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    """Open the same jobs again and again."""
    opened: list[Store] = []
    table = ""
    if request.param == "dynamodb":
        request.getfixturevalue("aws")
        table = make_table()

    def connect() -> Store:
        store: Store = (
            DynamoDbStore.connect(table, region=REGION)
            if table
            else SqliteStore(tmp_path / "folder" / "jobs.sqlite3")
        )
        opened.append(store)
        return store

    yield connect
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> Store:
    return open_store()


def ids(records: list[JobRecord]) -> list[str]:
    return [one.job.job_id for one in records]


def test_everything_is_there_after_reopening(open_store: OpenStore) -> None:
    store = open_store()
    store.create(record(), IdempotencyEntry(key="k", body_digest="d", job_id="job"))
    leased = with_lease(record(), "l").record
    written = store.commit(
        Change(record=leased, rounds=(round_entry(0, 2.5),), lines=(line(1.0), line(2.0)))
    )
    store.close()
    store = open_store()
    assert store.job("job") == written
    assert store.job_of_lease("l") == written
    assert store.round("job", 0) == store.last_round("job") == round_entry(0, 2.5)
    assert store.lines("job") == [line(1.0), line(2.0)]
    assert store.lines("job", skip=1) == [line(2.0)]
    assert store.idempotency("k") == IdempotencyEntry(key="k", body_digest="d", job_id="job")


def test_what_is_not_there_is_none_or_empty(store: Store) -> None:
    store.check()
    assert (store.job("x"), store.job_of_lease("x"), store.idempotency("x")) == (None, None, None)
    assert (store.round("x", 0), store.last_round("x")) == (None, None)
    assert (store.rounds("x", first=0, limit=9), store.ratios("x", before=999, limit=9)) == ([], [])
    assert (store.lines("x"), store.jobs(status=None, limit=9, before=None)) == ([], [])
    assert (store.with_status(("queued", "failed")), store.count(("queued", "failed"))) == ([], 0)
    with pytest.raises(VersionConflictError):
        store.delete(record("x"))
    with pytest.raises(VersionConflictError):
        store.commit(Change(record=record("x"), lines=(line(1.0),)))
    assert store.lines("x") == []


@pytest.mark.parametrize("with_lines", [False, True])
def test_a_change_to_an_old_version_is_refused_whole(store: Store, with_lines: bool) -> None:
    store.create(record(), None)
    store.commit(Change(record=record()))
    lines = (line(1.0),) if with_lines else ()
    stale = Change(record=with_status(record(), "failed").record, rounds=(round_entry(0),))
    with pytest.raises(VersionConflictError):
        store.commit(Change(record=stale.record, rounds=stale.rounds, lines=lines))
    assert (store.last_round("job"), store.lines("job")) == (None, [])
    assert (store.count(("queued",)), store.count(("failed",))) == (1, 0)


def test_concurrent_changes_all_take_effect(store: Store) -> None:
    store.create(record(), None)

    def add_line(old: JobRecord) -> Change:
        return Change(
            record=old.model_copy(update={"num_lines": old.num_lines + 1}), lines=(line(1.0),)
        )

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(change_job, store, "job", add_line, at=0.0) for _ in range(40)]:
            done.result()
    final = store.job("job")
    assert final is not None
    assert (final.version, final.num_lines, len(store.lines("job"))) == (40, 40, 40)


def test_a_job_is_added_once_and_a_key_belongs_to_one_job(store: Store) -> None:
    store.create(record("a"), IdempotencyEntry(key="k", body_digest="d", job_id="a"))
    with pytest.raises(VersionConflictError):
        store.create(record("b"), IdempotencyEntry(key="k", body_digest="d", job_id="b"))
    assert store.job("b") is None
    with pytest.raises(VersionConflictError):
        store.create(record("a"), None)
    assert store.count(("queued",)) == 1


def test_a_lease_is_found_while_it_is_held(store: Store) -> None:
    store.create(record("a"), None)
    store.create(record("b"), None)
    first = store.commit(with_lease(record("a"), "one"))
    store.commit(with_lease(record("b"), "other"))
    second = store.commit(with_lease(with_status(first, "running").record, "two"))
    assert store.job_of_lease("one") is None
    assert store.job_of_lease("two") == second
    ended = store.commit(with_status(second, "succeeded"))
    assert store.job_of_lease("two") == ended
    store.commit(with_lease(ended, None))
    assert store.job_of_lease("two") is None


def test_ratios_are_the_newest_defined_ones_oldest_first(store: Store) -> None:
    store.create(record(), None)
    ratios = (1.0, None, 3.0, 4.0, None)
    rounds = tuple(round_entry(i, r) for i, r in enumerate(ratios))
    kept = store.commit(Change(record=record(), rounds=rounds))
    assert store.ratios("job", before=999, limit=2) == [3.0, 4.0]
    assert store.ratios("job", before=3, limit=2) == [1.0, 3.0]
    assert store.ratios("job", before=999, limit=9) == [1.0, 3.0, 4.0]
    assert [e.round for e in store.rounds("job", first=1, limit=3)] == [1, 2, 3]
    store.commit(Change(record=kept, rounds=(round_entry(3), round_entry(4, 5.0))))
    assert store.ratios("job", before=999, limit=9) == [1.0, 3.0, 5.0]


def test_numbers_read_back_as_they_were_written(store: Store) -> None:
    store.create(record(), None)
    values = (0.1 + 0.2, math.pi, sys.float_info.max, sys.float_info.min, 1e-7, 1 / 3, -2.5e-17)
    rounds = tuple(round_entry(i, ratio) for i, ratio in enumerate(values))
    lines = tuple(line(abs(value)) for value in values)
    store.commit(Change(record=record(), rounds=rounds, lines=lines))
    assert store.ratios("job", before=999, limit=9) == list(values)
    assert store.rounds("job", first=0, limit=9) == list(rounds)
    assert store.lines("job") == list(lines)


def test_lines_keep_their_order_over_many_changes_and_can_be_skipped(store: Store) -> None:
    store.create(record(), None)
    kept = record()
    written: list[LedgerLine] = []
    for size in (1, 60, 0, 49, 120):
        lines = tuple(line(float(len(written) + i)) for i in range(size))
        kept = store.commit(Change(record=kept, lines=lines))
        written += lines
    for skip in (0, 1, 49, 50, 51, 60, 61, 109, 110, 160, 229, 230, 500):
        assert store.lines("job", skip=skip) == written[skip:]


def test_rounds_can_be_forgotten_from_one_on(store: Store) -> None:
    store.create(record(), None)
    rounds = (round_entry(0, 1.0), round_entry(1, 2.0), round_entry(2, 3.0))
    kept = store.commit(Change(record=record(), rounds=rounds))
    anew = Change(record=kept, forget_rounds_from=1, rounds=(round_entry(1, 7.0),))
    kept = store.commit(anew)
    assert store.rounds("job", first=0, limit=9) == [round_entry(0, 1.0), round_entry(1, 7.0)]
    assert store.ratios("job", before=999, limit=9) == [1.0, 7.0]
    store.commit(Change(record=kept, forget_rounds_from=0))
    assert (store.last_round("job"), store.ratios("job", before=999, limit=9)) == (None, [])


def test_more_rounds_than_one_transaction_holds_can_be_forgotten(store: Store) -> None:
    store.create(record(), None)
    kept = record()
    for start in (0, 30):
        rounds = tuple(round_entry(i, float(i)) for i in range(start, start + 30))
        kept = store.commit(Change(record=kept, rounds=rounds))
    kept = store.commit(Change(record=kept, forget_rounds_from=3))
    assert kept.version == 3
    assert [e.round for e in store.rounds("job", first=0, limit=200)] == [0, 1, 2]
    assert store.ratios("job", before=999, limit=200) == [0.0, 1.0, 2.0]


def test_a_round_as_large_as_a_request_may_be_is_kept_and_can_shrink(store: Store) -> None:
    """The scaler takes bodies of 1 MiB; an item of DynamoDB holds 400 KB."""
    store.create(record(), None)
    returns = tuple(i / 7 for i in range(70_000))
    large = round_entry(0).model_copy(update={"result": result(0, episode_returns=returns)})
    assert len(large.model_dump_json()) > 2**20
    kept = store.commit(Change(record=record(), rounds=(large,)))
    assert store.round("job", 0) == store.last_round("job") == large
    kept = store.commit(Change(record=kept, rounds=(round_entry(0),)))
    assert store.round("job", 0) == store.last_round("job") == round_entry(0)
    store.commit(Change(record=kept, rounds=(round_entry(1),)))
    assert [e.round for e in store.rounds("job", first=0, limit=2)] == [0, 1]


def test_deleting_a_job_leaves_nothing_of_it_and_all_of_the_others(store: Store) -> None:
    written: dict[str, JobRecord] = {}
    for job_id in ("a", "b"):
        store.create(record(job_id), IdempotencyEntry(key=job_id, body_digest="d", job_id=job_id))
        rounds = tuple(round_entry(i, 1.0) for i in range(30))
        kept = store.commit(Change(record=record(job_id), rounds=rounds, lines=(line(1.0),)))
        written[job_id] = kept
    store.delete(written["a"])
    assert (store.job("a"), store.last_round("a"), store.idempotency("a")) == (None, None, None)
    assert (store.lines("a"), store.ratios("a", before=999, limit=9)) == ([], [])
    assert ids(store.with_status(("queued",))) == ["b"]
    assert store.job("b") is not None
    assert store.lines("b") == [line(1.0)]
    assert len(store.rounds("b", first=0, limit=99)) == 30
    store.create(record("a"), IdempotencyEntry(key="a", body_digest="new", job_id="a"))
    assert (store.last_round("a"), store.lines("a")) == (None, [])


def test_a_job_that_was_changed_since_it_was_read_is_not_deleted(store: Store) -> None:
    store.create(record(), IdempotencyEntry(key="k", body_digest="d", job_id="job"))
    rounds = tuple(round_entry(i, 1.0) for i in range(30))
    old = store.commit(Change(record=record(), rounds=rounds, lines=(line(1.0),)))
    resumed = store.commit(with_status(old, "running"))
    for stale in (record(), old):
        with pytest.raises(VersionConflictError):
            store.delete(stale)
    assert store.job("job") == resumed
    assert store.rounds("job", first=0, limit=99) == list(rounds)
    assert store.lines("job") == [line(1.0)]
    assert store.idempotency("k") is not None
    store.delete(resumed)
    assert (store.job("job"), store.idempotency("k")) == (None, None)


def test_a_marked_job_that_is_changed_while_it_is_deleted_goes_all_the_same(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = open_store(), open_store()
    store.create(record(), None)
    marked = record().model_copy(update={"deleting": True})
    store.commit(Change(record=marked, rounds=(round_entry(0, 1.0),)))
    delete, late = store.delete, [line(1.0), line(2.0)]

    def delete_as_bills_come_in(read: JobRecord) -> None:
        if late:
            other.commit(Change(record=read, lines=(late.pop(),)))
        delete(read)

    monkeypatch.setattr(store, "delete", delete_as_bills_come_in)
    delete_job(store, "job")
    delete_job(store, "job")
    assert not late
    assert (store.job("job"), store.last_round("job"), store.lines("job")) == (None, None, [])


def test_a_record_of_before_deletions_were_marked_is_not_marked() -> None:
    old = record().model_dump(mode="json", exclude={"deleting"})
    assert JobRecord.model_validate_json(json.dumps(old)) == record()
    assert not record().deleting


def test_jobs_by_status(store: Store) -> None:
    for job_id in ("a", "b", "c", "d"):
        store.create(record(job_id), None)
    store.commit(with_status(record("b"), "running"))
    done = store.commit(with_status(record("d"), "failed"))
    assert ids(store.with_status(("queued",))) == ["a", "c"]
    assert ids(store.with_status(("running", "queued"))) == ["a", "b", "c"]
    assert ids(store.with_status(("failed", "running", "stopped"))) == ["b", "d"]
    assert store.count(("queued", "running")) == 3
    assert store.count(("failed", "running")) == 2
    store.commit(with_status(done, "queued"))
    assert ids(store.with_status(("queued",))) == ["a", "c", "d"]
    assert store.count(("failed", "stopped")) == 0


def test_jobs_with_launches_that_are_not_billed_are_found_in_any_state(store: Store) -> None:
    for job_id in ("a", "b", "c"):
        store.create(record(job_id), None)
    for job_id in ("b", "c"):
        opened = record(job_id).model_copy(update={"open_attempts": (open_attempt(),)})
        kept = store.commit(with_status(opened, "failed"))
    assert ids(store.with_open_attempts()) == ["b", "c"]
    billed = kept.model_copy(update={"open_attempts": ()})
    store.commit(Change(record=billed, lines=(line(1.0),)))
    assert ids(store.with_open_attempts()) == ["b"]


@pytest.mark.parametrize("status", [None, "queued"])
def test_jobs_are_listed_newest_first_page_by_page(store: Store, status: JobStatus | None) -> None:
    names = [f"j{i}" for i in range(7)]
    for name in names:
        store.create(record(name), None)
    store.commit(with_status(record("j2"), "running"))
    store.commit(with_status(record("j5"), "failed"))
    listed: list[str] = []
    cursor: int | None = None
    while page := store.jobs(status=status, limit=2, before=cursor):
        listed += [one.job.job_id for _, one in page if one]
        assert len(page) <= 2
        cursor = page[-1][0]
    everything = [n for n in reversed(names) if status is None or n not in ("j2", "j5")]
    assert listed == everything
