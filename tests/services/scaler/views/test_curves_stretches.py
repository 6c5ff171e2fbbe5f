"""Stretches of rounds that cannot change are read once; any other is read again."""

from pathlib import Path

import pytest

from nitro.dashboard.finished_runs import RunFolderBook, folder_record
from nitro.runs.reading import read_job
from services.scaler.book.attempts import RoundEntry
from services.scaler.book.records import JobRecord
from services.scaler.views.curves import CurveStretches
from tests.nitro.synthetic_run import JOB_ID, write_run
from tests.services.scaler.services_without_network import do


class CountedBook(RunFolderBook):
    reads = 0

    def rounds(self, job_id: str, *, first: int, limit: int) -> list[RoundEntry]:
        self.reads += 1
        return super().rounds(job_id, first=first, limit=limit)


@pytest.fixture
def book(tmp_path: Path) -> CountedBook:
    folder = write_run(tmp_path, rounds=12)
    found = CountedBook(tmp_path / "runs.sqlite3", {JOB_ID: folder})
    do(found.create(folder_record(folder, read_job(folder))))
    return found


def stretch(stretches: CurveStretches, record: JobRecord, after: int) -> tuple[object, ...]:
    return stretches.of(record, after=after, limit=5).columns["round"]


def changed(record: JobRecord, **fields: object) -> JobRecord:
    return record.model_copy(update={"job": record.job.model_copy(update=fields)})


def test_a_closed_stretch_is_read_once_and_the_last_one_each_time(book: CountedBook) -> None:
    ended = book.job(JOB_ID)
    assert ended is not None
    record = changed(ended, status="running", finished_at=None)
    stretches = CurveStretches(book=book, so_far=lambda _: None)
    for _ in range(3):
        assert stretch(stretches, record, -1) == (0, 1, 2, 3, 4)
    assert book.reads == 1
    for _ in range(3):
        assert stretch(stretches, record, 9) == (10, 11)
    assert book.reads == 4


def test_the_last_stretch_of_a_job_that_has_ended_is_read_once_each_time_it_ends(
    book: CountedBook,
) -> None:
    record = book.job(JOB_ID)
    assert record is not None
    stretches = CurveStretches(book=book, so_far=lambda _: None)
    for _ in range(3):
        assert stretch(stretches, record, 9) == (10, 11)
    assert book.reads == 1
    stretch(stretches, changed(record, status="running", finished_at=None), 9)
    stretch(stretches, changed(record, finished_at=99.0), 9)
    assert book.reads == 3


def test_a_rewound_job_is_read_again(book: CountedBook) -> None:
    record = book.job(JOB_ID)
    assert record is not None
    stretches = CurveStretches(book=book, so_far=lambda _: None)
    stretch(stretches, record, -1)
    again = stretches.of(record.model_copy(update={"rewinds": 1}), after=-1, limit=5)
    assert (again.generation, book.reads) == (1, 2)
