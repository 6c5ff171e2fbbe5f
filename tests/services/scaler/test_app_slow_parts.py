"""What one slow part of the system keeps waiting: only whoever asks for it."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.services.scaler.lambda_endpoint import throttle
from tests.services.scaler.running import Scaler, StartScaler, result

_WITHIN_S = 10.0


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Keep callers waiting until it is set."""
    event = threading.Event()
    yield event
    event.set()


def behind(gate: threading.Event, call: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*args: Any, **kwargs: Any) -> Any:
        gate.wait(60)
        return call(*args, **kwargs)

    return slow


def heartbeat(scaler: Scaler, lease_id: str) -> int:
    return scaler.http.put(f"/v1/leases/{lease_id}").status_code


def test_slow_files_keep_neither_lists_nor_the_control_plane_waiting(
    scaler: Scaler, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = scaler.submit()
    monkeypatch.setattr(scaler.parts.files, "files", behind(gate, scaler.parts.files.files))
    with ThreadPoolExecutor(8) as callers:
        links = f"/v1/jobs/{job.job_id}/artifacts"
        asked = [callers.submit(scaler.http.get, links) for _ in range(8)]
        time.sleep(0.2)
        for path in ("/v1/jobs", f"/v1/jobs/{job.job_id}/rounds", "/readyz"):
            assert scaler.http.get(path, timeout=_WITHIN_S).status_code == 200
        gate.set()
        assert {answer.result().status_code for answer in asked} == {200}


def test_slow_files_keep_no_job_waiting_that_begins_from_no_earlier_policy(
    scaler: Scaler, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = scaler.submit()
    monkeypatch.setattr(scaler.parts.files, "files", behind(gate, scaler.parts.files.files))
    with ThreadPoolExecutor(8) as callers:
        links = f"/v1/jobs/{job.job_id}/artifacts"
        asked = [callers.submit(scaler.http.get, links) for _ in range(8)]
        time.sleep(0.2)
        try:
            assert scaler.submit(seed=2).status == "queued"
        finally:
            gate.set()
        assert {answer.result().status_code for answer in asked} == {200}


def test_slow_files_keep_a_resume_waiting_and_not_the_jobs_changes(
    scaler: Scaler, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = scaler.submit().job_id
    scaler.http.post(f"/v1/jobs/{job_id}/stop")
    monkeypatch.setattr(scaler.parts.files, "names", behind(gate, scaler.parts.files.names))
    with ThreadPoolExecutor(1) as caller:
        resumed = caller.submit(scaler.http.post, f"/v1/jobs/{job_id}/resume")
        time.sleep(0.2)
        try:
            noted = scaler.http.put(
                f"/v1/jobs/{job_id}/note", json={"note": "soon"}, timeout=_WITHIN_S
            )
            assert noted.status_code == 200
        finally:
            gate.set()
        assert resumed.result().json()["status"] == "queued"
    assert scaler.job(job_id).spec.note == "soon"


def test_a_slow_cache_keeps_the_end_of_a_job_not_waiting(
    scaler: Scaler, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, cache = scaler.begin(actors={"min": 2, "max": 2}), scaler.parts.cache
    monkeypatch.setattr(cache, "request_cancel", behind(gate, cache.request_cancel))
    open_actors = scaler.lambdas.hold_rollouts()
    scaler.round(lease, 0)
    began = time.monotonic()
    scaler.call(scaler.parts.jobs.expire(lease.job.job_id))
    assert time.monotonic() - began < _WITHIN_S
    open_actors.set()


def test_a_slow_cache_holds_up_a_rewind_and_not_the_jobs_heartbeats(
    scaler: Scaler, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease lasts 30 s: its holder must not lose it to a cache."""
    lease, cache = scaler.begin(actors={"min": 2, "max": 2}), scaler.parts.cache
    scaler.played(lease, 0)
    scaler.played(lease, 1, previous=result(0))
    scaler.http.delete(f"/v1/leases/{lease.lease_id}")
    again = scaler.lease()
    monkeypatch.setattr(cache, "forget_rounds", behind(gate, cache.forget_rounds))
    with ThreadPoolExecutor(2) as callers:
        asked = [callers.submit(scaler.round, again, 0) for _ in range(2)]
        time.sleep(0.2)
        assert not any(each.done() for each in asked)
        assert heartbeat(scaler, again.lease_id) == 200
        gate.set()
        first, second = (each.result() for each in asked)
    assert first.attempt == second.attempt
    scaler.landed(lease.job.job_id)
    assert scaler.record(lease.job.job_id).rewinds == 1


def test_nothing_is_invoked_once_another_scaler_has_the_table(
    start_scaler: StartScaler,
) -> None:
    with start_scaler(throttled_s=60.0) as scaler:
        lease = scaler.begin(actors={"min": 2, "max": 2})
        scaler.lambdas.rollouts_behave(lambda _task, _nth: throttle())
        scaler.round(lease, 0)
        scaler.lambdas.wait_events("sample", 8)  # they are tried again and again
        scaler.parts.book.fenced = True
        time.sleep(0.5)  # what is on its way arrives
        num_seen = len(scaler.lambdas.rollouts())
        time.sleep(6.5)  # twice the longest pause between tries
        assert len(scaler.lambdas.rollouts()) == num_seen


def test_the_apis_description_is_made_off_the_loop_by_one_thread_at_a_time(
    scaler: Scaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    app: Any = scaler.on_loop._app
    made_by: list[threading.Thread] = []
    make, making = app.openapi, threading.Lock()

    def noted() -> Any:
        assert making.acquire(blocking=False)
        made_by.append(threading.current_thread())
        try:
            return make()
        finally:
            making.release()

    async def on_loop() -> threading.Thread:
        return threading.current_thread()

    monkeypatch.setattr(app, "openapi", noted)
    with ThreadPoolExecutor(4) as visitors:
        answers = list(visitors.map(lambda _: scaler.http.get("/openapi.json"), range(4)))
    assert [each.json()["info"]["title"] for each in answers] == ["Nitro scaler"] * 4
    assert scaler.http.put("/v1/jobs").status_code == 405
    assert scaler.call(on_loop()) not in made_by


def test_a_deletion_of_thousands_of_items_runs_off_the_loop(
    scaler: Scaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = scaler.parts.book._table
    lease = scaler.begin(actors={"min": 2, "max": 2})
    scaler.played(lease, 0)
    scaler.finish(lease)
    deleted_by: list[str] = []
    write = table.write

    def noted(puts: Any, deletes: Any = (), **expected: Any) -> None:
        if deletes:
            deleted_by.append(threading.current_thread().name)
        write(puts, deletes, **expected)

    monkeypatch.setattr(table, "write", noted)
    assert scaler.http.delete(f"/v1/jobs/{lease.job.job_id}").status_code == 204
    assert set(deleted_by) == {"long-calls-of-the-table"}
