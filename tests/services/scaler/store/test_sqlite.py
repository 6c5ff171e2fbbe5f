"""The store by what it promises: whole changes, conflicts seen, nothing lost on reopening."""

import concurrent.futures
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from services.scaler.store.base import (
    Change,
    IdempotencyEntry,
    JobRecord,
    LeaseRecord,
    RoundEntry,
    StoreError,
    VersionConflictError,
    change_job,
)
from services.scaler.store.sqlite import SqliteStore
from shared.billing import LedgerLine
from shared.job_spec import JobSpec
from shared.jobs import Job
from tests.services.scaler.lambda_endpoint import HOPPER
from tests.services.scaler.test_round_order import entry, planned


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "folder" / "jobs.sqlite3")
    yield opened
    opened.close()


def record(job_id: str = "job") -> JobRecord:
    job = Job(job_id=job_id, spec=JobSpec(), environment=HOPPER, status="queued", created_at=1.5)
    return JobRecord(job=job)


def line(amount: float) -> LedgerLine:
    return LedgerLine(
        round=0,
        attempt=0,
        item="learner",
        quantity=amount,
        unit="second",
        unit_price_usd=1.0,
        amount_usd=amount,
    )


def round_entry(index: int, ratio: float | None = None) -> RoundEntry:
    return entry(planned(index, 0)).model_copy(update={"ratio": ratio})


def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite3"
    store = SqliteStore(path)
    store.create(record(), IdempotencyEntry(key="k", body_digest="d", job_id="job"))
    lease = LeaseRecord(lease_id="l", learner_id="x", expires_at=9.0)
    written = store.commit(
        Change(
            record=record().model_copy(update={"lease": lease}),
            rounds=(round_entry(0, 2.5),),
            lines=(line(1.0), line(2.0)),
        )
    )
    store.close()
    store = SqliteStore(path)
    assert store.job("job") == written
    assert store.job_of_lease("l") == written
    assert store.round("job", 0) == store.last_round("job") == round_entry(0, 2.5)
    assert store.lines("job") == [line(1.0), line(2.0)]
    assert store.lines("job", skip=1) == [line(2.0)]
    assert store.idempotency("k") == IdempotencyEntry(key="k", body_digest="d", job_id="job")
    store.close()


def test_a_change_to_an_old_version_is_refused_whole(store: SqliteStore) -> None:
    store.create(record(), None)
    store.commit(Change(record=record()))
    stale = Change(record=record(), rounds=(round_entry(0),), lines=(line(1.0),))
    with pytest.raises(VersionConflictError):
        store.commit(stale)
    assert store.last_round("job") is None
    assert store.lines("job") == []


def test_concurrent_changes_all_take_effect(store: SqliteStore) -> None:
    store.create(record(), None)

    def add_line(old: JobRecord) -> Change:
        return Change(
            record=old.model_copy(update={"num_lines": old.num_lines + 1}), lines=(line(1.0),)
        )

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(change_job, store, "job", add_line) for _ in range(40)]:
            done.result()
    final = store.job("job")
    assert final is not None
    assert (final.version, final.num_lines, len(store.lines("job"))) == (40, 40, 40)


def test_a_key_belongs_to_one_job(store: SqliteStore) -> None:
    store.create(record("a"), IdempotencyEntry(key="k", body_digest="d", job_id="a"))
    with pytest.raises(VersionConflictError):
        store.create(record("b"), IdempotencyEntry(key="k", body_digest="d", job_id="b"))
    assert store.job("b") is None


def test_ratios_are_the_newest_defined_ones_oldest_first(store: SqliteStore) -> None:
    store.create(record(), None)
    ratios = (1.0, None, 3.0, 4.0, None)
    rounds = tuple(round_entry(i, r) for i, r in enumerate(ratios))
    store.commit(Change(record=record(), rounds=rounds))
    assert store.ratios("job", before=9, limit=2) == [3.0, 4.0]
    assert store.ratios("job", before=9, limit=9) == [1.0, 3.0, 4.0]
    assert [e.round for e in store.rounds("job", first=1, limit=3)] == [1, 2, 3]


def test_rounds_can_be_forgotten_from_one_on(store: SqliteStore) -> None:
    store.create(record(), None)
    kept = store.commit(Change(record=record(), rounds=(round_entry(0), round_entry(1))))
    store.commit(Change(record=kept, forget_rounds_from=1))
    assert [e.round for e in store.rounds("job", first=0, limit=9)] == [0]


def test_deleting_a_job_leaves_nothing_of_it_and_all_of_the_others(store: SqliteStore) -> None:
    for job_id in ("a", "b"):
        store.create(record(job_id), IdempotencyEntry(key=job_id, body_digest="d", job_id=job_id))
        store.commit(Change(record=record(job_id), rounds=(round_entry(0),), lines=(line(1.0),)))
    store.delete("a")
    assert (store.job("a"), store.last_round("a"), store.idempotency("a")) == (None, None, None)
    assert store.lines("a") == []
    assert store.job("b") is not None
    assert store.lines("b") == [line(1.0)]


def test_jobs_by_status(store: SqliteStore) -> None:
    for job_id in ("a", "b", "c"):
        store.create(record(job_id), None)
    job = record("b").job.model_copy(update={"status": "running"})
    store.commit(Change(record=record("b").model_copy(update={"job": job})))
    assert [r.job.job_id for r in store.with_status(("queued",))] == ["a", "c"]
    assert store.count(("queued", "running")) == 3
    assert [r.job.job_id for _, r in store.jobs(status=None, limit=2, before=None)] == ["c", "b"]


def test_a_document_of_another_version_is_told_with_file_and_setting(
    tmp_path: Path, store: SqliteStore
) -> None:
    store.create(record(), None)
    with closing(sqlite3.connect(tmp_path / "folder" / "jobs.sqlite3")) as connection, connection:
        connection.execute("UPDATE jobs SET document = json_remove(document, '$.job.spec')")
    with pytest.raises(StoreError, match=r"jobs.sqlite3 holds a JobRecord.*NITRO_DATABASE"):
        store.job("job")


@pytest.mark.parametrize("kind", ["file_as_folder", "no_database", "folder"])
def test_a_file_that_cannot_be_used_is_named_with_the_setting(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "jobs.sqlite3"
    if kind == "file_as_folder":
        path.write_text("x")
        path = path / "jobs.sqlite3"
    elif kind == "no_database":
        path.write_text("this is no database, however long one looks at it" * 20)
    else:
        path.mkdir()
    with pytest.raises(StoreError, match="jobs.sqlite3.*NITRO_DATABASE"):
        SqliteStore(path)
