"""Rounds whose store refuses, or takes what it is given and fails to say so."""

import concurrent.futures
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from services.scaler.book.book import Book
from services.scaler.book.table import Item, StoreError
from shared.contracts.jobs import Job
from shared.contracts.leases import Lease
from tests.services.scaler.rounds.test_service import SMALL, samples
from tests.services.scaler.running import Scaler, StartScaler, result


def _rounds(puts: Sequence[Item]) -> list[Item]:
    return [item for item in puts if item.key[1].startswith("ROUND#")]


@dataclass
class RefusingStore:
    """Refuses to book outcomes while it is told to; stands before a scaler's own store."""

    refusing: threading.Event = field(default_factory=threading.Event)
    refused: threading.Event = field(default_factory=threading.Event)
    booked: threading.Event = field(default_factory=threading.Event)

    def stand_before(self, book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
        write = book._table.write

        def refuse_outcomes(puts: Sequence[Item], *rest: Any, **expected: Any) -> None:
            # Counts of a round come with its booking.
            is_booking = any('"launches":{' in item.body for item in _rounds(puts))
            if is_booking and self.refusing.is_set():
                self.refused.set()
                raise StoreError("throttled")
            write(puts, *rest, **expected)
            if is_booking:
                self.booked.set()

        monkeypatch.setattr(book._table, "write", refuse_outcomes)


def _outcome_refused(
    scaler: Scaler, monkeypatch: pytest.MonkeyPatch
) -> tuple[RefusingStore, Job, Lease]:
    """Round 0 of a small job, launched, whose outcome the store has refused to book."""
    store = RefusingStore()
    store.refusing.set()
    store.stand_before(scaler.parts.book, monkeypatch)
    job = scaler.submit(**SMALL)
    lease = scaler.lease()
    scaler.round(lease, 0)
    assert store.refused.wait(10)
    return store, job, lease


def test_an_outcome_the_store_refused_is_billed_with_the_next_plan(
    scaler: Scaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, job, lease = _outcome_refused(scaler, monkeypatch)
    scaler.landed(job.job_id)
    store.refusing.clear()
    plan = scaler.round(lease, 1, previous=result(0))
    assert {line.round for line in plan.settled} == {0}
    launches = scaler.rounds(job.job_id).rounds[0].launches
    assert launches is not None
    assert launches.succeeded == 7


def test_an_outcome_the_store_refused_is_billed_though_no_plan_follows(
    scaler: Scaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, job, lease = _outcome_refused(scaler, monkeypatch)
    scaler.finish(lease)
    assert scaler.cost(job.job_id).reserved_usd > 0
    store.refusing.clear()
    assert store.booked.wait(30)
    cost = scaler.cost(job.job_id)
    assert cost.reserved_usd == 0
    requests = [line.quantity for line in cost.lines if line.item == "lambda_requests"]
    assert requests == [7]


@dataclass
class ForgetfulStore:
    """Writes the next plan and fails to say so; stands before a scaler's own store."""

    written: threading.Event = field(default_factory=threading.Event)
    may_answer: threading.Event = field(default_factory=threading.Event)
    error: StoreError | None = field(default_factory=lambda: StoreError("the answer is lost"))

    def stand_before(self, book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
        write = book._table.write

        def write_and_forget(puts: Sequence[Item], *rest: Any, **expected: Any) -> None:
            write(puts, *rest, **expected)
            if _rounds(puts) and not self.written.is_set():
                self.written.set()
                assert self.may_answer.wait(10)
                if self.error is not None:
                    raise self.error

        monkeypatch.setattr(book._table, "write", write_and_forget)


def _plan_not_answered(scaler: Scaler, monkeypatch: pytest.MonkeyPatch) -> tuple[Job, Lease]:
    """Round 0 of a small job, whose plan is written while the answer is an error."""
    store = ForgetfulStore()
    store.may_answer.set()
    job = scaler.submit(**SMALL)
    lease = scaler.lease()
    store.stand_before(scaler.parts.book, monkeypatch)
    assert scaler.round_response(lease, 0).status_code == 503
    return job, lease


def test_a_plan_that_was_written_but_not_answered_is_launched_when_it_is_asked_for_again(
    scaler: Scaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, lease = _plan_not_answered(scaler, monkeypatch)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        plans = [f.result() for f in [pool.submit(scaler.round, lease, 0) for _ in range(8)]]
    answers = {plan.model_copy(update={"age_s": 0.0}).model_dump_json() for plan in plans}
    assert len(answers) == 1
    scaler.landed(job.job_id)
    assert sorted(scaler.lambdas.rollouts()) == samples(job.job_id, 0, 0, 4)
    assert len(scaler.lambdas.rollouts("evaluate")) == 3
    scaler.played(lease, 1, previous=result(0))
    scaler.finish(lease)
    assert scaler.cost(job.job_id).reserved_usd == 0


def test_a_plan_that_was_written_and_never_asked_for_again_is_billed_as_nothing_at_the_jobs_end(
    scaler: Scaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, lease = _plan_not_answered(scaler, monkeypatch)
    assert scaler.cost(job.job_id).reserved_usd > 0
    scaler.finish(lease)
    assert scaler.cost(job.job_id).reserved_usd == 0
    assert not scaler.record(job.job_id).is_live
    assert scaler.lambdas.rollouts() == []
    assert {line.item for line in scaler.cost(job.job_id).lines}.isdisjoint(
        {"lambda_duration", "lambda_requests"}
    )


def test_a_plan_that_is_launched_late_is_as_young_as_its_actors(
    start_scaler: StartScaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_800_000_000.0]
    with start_scaler(now=lambda: now[0]) as scaler:
        job, lease = _plan_not_answered(scaler, monkeypatch)
        now[0] += 20.0
        assert scaler.round(lease, 0).age_s == 0.0
        scaler.landed(job.job_id)
        assert scaler.round(lease, 0).age_s == 20.0
        assert len(scaler.lambdas.rollouts()) == 4


@pytest.mark.parametrize("error", [StoreError("the answer is lost"), None], ids=["lost", "late"])
def test_a_plan_asked_for_again_before_its_writing_is_answered_is_launched_once(
    scaler: Scaler, monkeypatch: pytest.MonkeyPatch, error: StoreError | None
) -> None:
    store = ForgetfulStore(error=error)
    lease = scaler.begin(**SMALL)
    store.stand_before(scaler.parts.book, monkeypatch)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(scaler.round_response, lease, 0)
        assert store.written.wait(10)
        second = pool.submit(scaler.round_response, lease, 0)
        store.may_answer.set()
        assert first.result().status_code == (200 if error is None else 503)
        assert second.result().status_code == 200
    scaler.played(lease, 0)
    assert sorted(scaler.lambdas.rollouts()) == samples(lease.job.job_id, 0, 0, 4)


def test_a_reopened_round_whose_answer_was_lost_launches_what_was_missing(
    scaler: Scaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ForgetfulStore()
    store.may_answer.set()
    lease = scaler.begin(**SMALL)
    scaler.played(lease, 0)
    store.stand_before(scaler.parts.book, monkeypatch)
    assert scaler.round_response(lease, 0, attempt=1, missing=(1, 3)).status_code == 503
    scaler.played(lease, 0, attempt=1, missing=(1, 3))
    assert sorted(scaler.lambdas.rollouts())[4:] == [
        (lease.job.job_id, 0, 1, 1),
        (lease.job.job_id, 0, 1, 3),
    ]


def test_a_plan_an_earlier_process_did_not_answer_is_not_launched_by_the_next(
    start_scaler: StartScaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start_scaler() as scaler:
        job, lease = _plan_not_answered(scaler, monkeypatch)
    with start_scaler() as scaler:
        assert scaler.round(lease, 0).num_actors == 4
        launches = scaler.rounds(job.job_id).rounds[0].launches
        assert launches is not None
        assert launches.unknown == 7
        assert scaler.parts.launches.flights.in_flight() == 0
    assert scaler.lambdas.rollouts() == []
