"""Pings of a running scaler: as many idle environments as a job can still use, when it is time."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from services.scaler.book.records import Change, JobRecord, LeaseRecord
from services.scaler.book.table import StoreError
from services.scaler.capacity.keep_alive import environments_to_keep
from shared.contracts.job_spec import Warm
from shared.money.costs import ping_s
from tests.patience import ANSWER_S
from tests.services.scaler.capacity.test_decision import rule
from tests.services.scaler.lambda_endpoint import LambdaEndpoint, Reply, Task, healthy
from tests.services.scaler.money.test_kept_warm import job
from tests.services.scaler.running import Scaler, StartScaler, result

SPEC = {
    "actors": {"min": 2, "max": 4},
    "scaling": {"policy": "schedule", "num_actors": [4, 2, 2, 4]},
    "evaluation": {"every_rounds": 0},
}


@pytest.fixture
def scaler(start_scaler: StartScaler, lambdas: LambdaEndpoint) -> Iterator[Scaler]:
    """A scaler that pings whatever has not been in use for a tenth of a second."""
    lambdas.behave = lambda task, nth: (
        Reply(body={"cold_start": False}) if task["mode"] == "ping" else healthy(task, nth)
    )
    with start_scaler(
        provisioned_concurrency=64, ping_every_s=0.1, reconcile_every_s=0.05
    ) as scaler:
        yield scaler


def pings(lambdas: LambdaEndpoint) -> list[object]:
    """How long each ping holds its environment."""
    with lambdas.changed:
        return [event["hold_s"] for event in lambdas.events if event["mode"] == "ping"]


@pytest.mark.parametrize(
    ("warm", "started", "held", "kept"),
    [
        ("reuse", 64, True, 64),
        ("reuse", 90, True, 64),  # a round can need no more
        ("reuse", 20, True, 20),  # no more were ever started
        ("reuse", 64, False, 0),  # at nobody's expense
        ("auto", 64, True, 64),
        ("none", 64, True, 0),
        ("provisioned", 64, True, 0),
        (None, 64, True, 0),
    ],
)
def test_only_what_was_started_and_may_be_needed_is_kept(
    warm: Warm | None, started: int, held: bool, kept: int
) -> None:
    lease = LeaseRecord(lease_id="lease", learner_id="x", expires_at=100.0 if held else 10.0)
    record = JobRecord(job=job(warm=warm), environments=started, lease=lease)
    assert environments_to_keep([record], rule(), now=50.0) == kept
    if warm == "auto":
        provisioned = record.model_copy(update={"warm": 64})
        assert environments_to_keep([provisioned], rule(), now=50.0) == 0


def test_idle_environments_are_pinged_together_and_only_while_the_job_is_held(
    scaler: Scaler, lambdas: LambdaEndpoint
) -> None:
    job = scaler.submit(**SPEC, warm="reuse")
    lease = scaler.lease()
    assert pings(lambdas) == []  # there is nothing to keep
    scaler.round(lease, 0)
    scaler.landed(job.job_id)
    lambdas.wait_events("ping", 8)
    sent = pings(lambdas)
    assert set(sent) == {ping_s(4)}
    assert lambdas.provision_calls == []
    found = scaler.http.get("/metrics").text
    assert 'nitro_scaler_pings_total{found="warm"}' in found
    scaler.finish(lease, status="failed", stop_reason="error")
    assert scaler.cost(job.job_id).by_item.get("provisioned_concurrency", 0.0) == 0.0


def test_no_ping_is_sent_while_earlier_ones_hold_their_environments(
    scaler: Scaler, lambdas: LambdaEndpoint
) -> None:
    ended = threading.Event()

    def behave(task: Task, nth: int) -> Reply:
        if task["mode"] == "ping":
            return Reply(body={"cold_start": False}, gate=ended)
        return healthy(task, nth)

    lambdas.behave = behave
    job = scaler.submit(**SPEC, warm="reuse")
    lease = scaler.lease()
    scaler.round(lease, 0)
    scaler.landed(job.job_id)
    lambdas.wait_events("ping", 4)
    with lambdas.changed:  # five times as long as an environment may idle here
        assert not lambdas.changed.wait_for(lambda: len(pings(lambdas)) > 4, 0.5)
    ended.set()
    lambdas.wait_events("ping", 8)


def test_a_scaler_that_starts_again_and_again_sends_no_pings_beyond_those_billed(
    start_scaler: StartScaler, lambdas: LambdaEndpoint
) -> None:
    with start_scaler(ping_every_s=60.0) as first:
        first.submit(**SPEC, warm="reuse")
        first.played(first.lease(), 0)
    for _ in range(2):
        with start_scaler(ping_every_s=60.0) as again:
            assert again.parts.capacity.keep_alive.look(4) > 50.0
    assert pings(lambdas) == []


def test_a_ping_ends_before_a_very_short_time_out(
    start_scaler: StartScaler, lambdas: LambdaEndpoint
) -> None:
    with start_scaler(lambda_timeout_s=0.3, ping_every_s=0.1, reconcile_every_s=0.05) as scaler:
        scaler.submit(**SPEC, warm="reuse")
        scaler.played(scaler.lease(), 0)
        lambdas.wait_events("ping", 4)
    assert set(pings(lambdas)) == {0.15}


def test_those_at_work_are_not_pinged(scaler: Scaler, lambdas: LambdaEndpoint) -> None:
    job = scaler.submit(**SPEC, warm="reuse")
    lease = scaler.lease()
    scaler.played(lease, 0)
    gate = lambdas.hold_rollouts()
    held = lambdas.behave
    lambdas.behave = lambda task, nth: (
        Reply(body={"cold_start": False}) if task["mode"] == "ping" else held(task, nth)
    )
    scaler.round(lease, 1, previous=result(0))
    with lambdas.changed:
        assert lambdas.changed.wait_for(lambda: ping_s(2) in pings(lambdas), ANSWER_S)
    gate.set()
    scaler.landed(job.job_id)


def test_a_job_that_wants_no_pings_gets_none_and_its_cold_starts_are_counted(
    scaler: Scaler, lambdas: LambdaEndpoint
) -> None:
    def cold(task: dict[str, object], nth: int) -> Reply:
        reply = healthy(task, nth)
        body = reply.body
        assert isinstance(body, dict)
        first = task["mode"] == "sample" and task["round"] == 0
        return replace(reply, body={**body, "cold_start": True}) if first else reply

    lambdas.behave = cold
    job = scaler.submit(**SPEC, warm="none")
    lease = scaler.lease()
    scaler.played(lease, 0)
    scaler.played(lease, 1, previous=result(0))
    launches = [each.launches for each in scaler.rounds(job.job_id).rounds]
    assert [counts.cold_starts for counts in launches if counts is not None] == [4, 0]
    assert pings(lambdas) == []


def test_environments_that_pings_found_gone_are_noted_in_the_job_and_billed(
    scaler: Scaler, lambdas: LambdaEndpoint
) -> None:
    lambdas.behave = lambda task, nth: (
        Reply(body={"cold_start": True}) if task["mode"] == "ping" else healthy(task, nth)
    )
    job = scaler.submit(**SPEC, warm="reuse")
    lease = scaler.lease()
    scaler.played(lease, 0)
    lambdas.wait_events("ping", 12)  # the first of them have ended, and were looked at since
    scaler.finish(lease, status="failed", stop_reason="error")
    scaler.landed(job.job_id)
    assert scaler.cost(job.job_id).by_item["pings"] > 0.0
    found = scaler.http.get("/metrics").text
    assert 'nitro_scaler_pings_total{found="none"}' in found


def test_none_of_those_is_forgotten_where_the_store_refuses(
    scaler: Scaler, lambdas: LambdaEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first_cold(task: dict[str, object], nth: int) -> Reply:
        if task["mode"] != "ping":
            return healthy(task, nth)
        with lambdas.changed:
            sent = sum(event["mode"] == "ping" for event in lambdas.events)
        return Reply(body={"cold_start": sent <= 4})

    change, refusals, noted = scaler.parts.book.change, [4], threading.Event()

    async def change_later(
        job_id: str, decide: Callable[[JobRecord], Change | None]
    ) -> JobRecord | None:
        record = scaler.parts.book.job(job_id)
        assert record is not None
        decided = decide(record)
        if decided is not None and decided.record.cold_pings and refusals:
            refusals.pop()
            raise StoreError("made up")
        if decided is not None and decided.record.cold_pings == 4:
            noted.set()
        return await change(job_id, lambda _: decided)

    lambdas.behave = first_cold
    monkeypatch.setattr(scaler.parts.book, "change", change_later)
    scaler.submit(**SPEC, warm="reuse")
    scaler.played(scaler.lease(), 0)
    assert noted.wait(ANSWER_S)
    assert refusals == []
