import fcntl
import os
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from nitro.errors import EXIT_USAGE, CommandError
from nitro.local.state_folder import StateFolder
from services.scaler.book.book import Book
from services.scaler.book.records import IdempotencyEntry
from services.scaler.book.sqlite import SqliteTable
from tests.services.scaler.book.records import line, open_attempt, record, round_entry, write
from tests.services.scaler.services_without_network import do


def opened(path: Path) -> Book:
    return Book(SqliteTable(path), now=lambda: 0.0)


def test_systems_of_single_jobs_have_a_folder_each(tmp_path: Path) -> None:
    systems = [StateFolder(tmp_path) for _ in range(4)]
    for system in systems:
        system.acquire()
    assert len({system.folder for system in systems}) == 4
    freed = systems[1].folder
    systems[1].release()
    again = StateFolder(tmp_path)
    again.acquire()
    assert again.folder == freed
    for system in (again, *systems):
        system.release()


def test_a_lasting_system_needs_the_folder_that_others_look_into(tmp_path: Path) -> None:
    first, second = StateFolder(tmp_path), StateFolder(tmp_path)
    first.acquire()
    first.write_address("http://127.0.0.1:1234")
    with pytest.raises(CommandError) as caught:
        second.acquire(lasting=True)
    assert caught.value.exit_code == EXIT_USAGE
    assert f"pid {os.getpid()}" in str(caught.value)
    assert "--api-url http://127.0.0.1:1234" in str(caught.value)
    first.release()
    second.acquire(lasting=True)
    second.release()


def test_a_job_goes_on_in_another_system_unless_one_trains_it(tmp_path: Path) -> None:
    first, second = StateFolder(tmp_path), StateFolder(tmp_path)
    first.acquire()
    key = IdempotencyEntry(key="mine", body_digest="d", job_id="job")
    with closing(opened(first.database_path)) as book:
        do(book.create(record("other")))
        do(book.create(record(), key))
        do(write(book, status="succeeded"))
        do(write(book, lines=(line(1.0), line(2.0)), rounds=(round_entry(0), round_entry(1))))
    second.acquire()
    second.take_over(job_id=None, key="another")
    second.take_over(job_id="job", key=None)
    with closing(opened(second.database_path)) as book:
        assert [each.round for each in book.rounds("job", first=0, limit=9)] == [0, 1]
        assert [each.amount_usd for each in book.lines("job")] == [1.0, 2.0]
        assert book.idempotency("mine") == key
        moved = book.job("job")
        assert moved is not None
        assert moved.job.status == "succeeded"
        do(write(book, status="running"))
    with closing(opened(first.database_path)) as book:
        assert book.job("job") is None
        assert book.lines("job") == []
        assert book.job("other") is not None
    with pytest.raises(CommandError, match=f"job job is not over: process {os.getpid()} trains"):
        first.take_over(job_id=None, key="mine")
    second.release()  # or killed: what it has left goes on here
    first.take_over(job_id=None, key="mine")
    with closing(opened(first.database_path)) as book:
        assert book.job("job") is not None
    first.release()


def test_a_job_whose_last_actors_are_in_flight_stays_with_the_system_that_bills_them(
    tmp_path: Path,
) -> None:
    first, second = StateFolder(tmp_path), StateFolder(tmp_path)
    first.acquire()
    second.acquire()
    with closing(opened(first.database_path)) as book:
        do(book.create(record()))
        do(write(book, status="succeeded", open_attempts=(open_attempt(),)))
        with pytest.raises(CommandError, match="job job is not over"):
            second.take_over(job_id="job", key=None)
        do(write(book, open_attempts=(), lines=(line(1.0),)))
    second.take_over(job_id="job", key=None)
    with closing(opened(second.database_path)) as book:
        assert [each.amount_usd for each in book.lines("job")] == [1.0]
    second.release()
    first.release()


def test_a_job_whose_key_is_another_jobs_here_is_left_where_it_is(tmp_path: Path) -> None:
    first, second = StateFolder(tmp_path), StateFolder(tmp_path)
    first.acquire()
    second.acquire()
    for state, job_id in ((first, "one"), (second, "two")):
        with closing(opened(state.database_path)) as book:
            do(
                book.create(
                    record(job_id), IdempotencyEntry(key="k", body_digest="d", job_id=job_id)
                )
            )
            do(write(book, job_id, status="succeeded", lines=(line(1.0),)))
    with pytest.raises(CommandError, match=r"key 'k' is job one's in .* and job two's in .*delete"):
        second.take_over(job_id="one", key=None)
    for state, job_id in ((first, "one"), (second, "two")):
        with closing(opened(state.database_path)) as book:
            assert [row.job_id for _, row in book.rows(limit=9, before=None)] == [job_id]
            assert len(book.lines(job_id)) == 1
    second.release()
    first.release()


def test_a_look_at_the_holder_keeps_nobody_from_taking_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateFolder(tmp_path)
    state.acquire()
    state.release()
    with (state.folder / "lock").open("rb") as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        monkeypatch.setattr("time.sleep", lambda _: fcntl.flock(look, fcntl.LOCK_UN))
        state.acquire()
    state.release()


def test_only_a_system_that_outlives_jobs_is_for_others(tmp_path: Path) -> None:
    holder, other = StateFolder(tmp_path), StateFolder(tmp_path)
    assert not other.is_served()
    holder.acquire()
    holder.write_address("http://127.0.0.1:1234")
    assert not other.is_served()  # it ends with its own job
    holder.release()
    holder.acquire(lasting=True)
    holder.write_address("http://127.0.0.1:1234")
    assert other.is_served()
    holder.release()
    assert not other.is_served()


def test_the_token_is_random_and_for_this_user_only(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    state.folder.mkdir(mode=0o755)  # of an earlier version
    state.acquire()
    assert stat.S_IMODE(state.folder.stat().st_mode) == 0o700
    state.token_path.touch(mode=0o666)  # left over, readable by others
    token = state.write_token()
    assert state.token_path.read_text() == token
    assert stat.S_IMODE(state.token_path.stat().st_mode) == 0o600
    assert len(token) >= 32
    assert state.write_token() != token
    state.release()
    assert not state.token_path.exists()


def test_an_unwritable_folder_is_named_with_the_fix(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(CommandError, match=f"--runs-dir: cannot write to {blocked}.*choose"):
        StateFolder(blocked).acquire()


@contextmanager
def no_space() -> Iterator[None]:
    """Let no file of this process grow, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "write",
    [
        StateFolder.acquire,
        StateFolder.write_token,
        lambda state: state.write_address("http://127.0.0.1:1234"),
    ],
    ids=["lock", "token", "address"],
)
def test_a_full_disk_is_told_and_the_folder_can_be_released(
    tmp_path: Path, write: Callable[[StateFolder], object]
) -> None:
    state = StateFolder(tmp_path)
    if write is not StateFolder.acquire:
        state.acquire()
    with no_space():
        with pytest.raises(CommandError, match=f"--runs-dir: cannot write to {tmp_path}"):
            write(state)
        state.release()
    state.acquire()
    state.release()


def test_logs_of_the_last_run_are_kept_once(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    state.acquire()
    log = state.fresh_log("scaler")
    log.write_text("old")
    assert not state.fresh_log("scaler").exists()
    assert log.with_suffix(".log.1").read_text() == "old"
    state.release()


def test_releasing_what_was_never_held_changes_nothing(tmp_path: Path) -> None:
    holder, other = StateFolder(tmp_path), StateFolder(tmp_path)
    holder.acquire()
    holder.write_token()
    other.release()
    assert holder.token_path.exists()
    holder.release()
    holder.release()
