"""Requests for gradients: launched once, paid for before, booked when all has ended."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from services.scaler.book.book import Book
from services.scaler.book.records import Change, JobRecord, LeaseRecord
from services.scaler.book.sqlite import SqliteTable
from services.scaler.book.table import StoreError
from services.scaler.gradients.service import GradientService
from services.scaler.launching.invoker import Awaited, Invoker
from services.scaler.launching.tasks import GradientOutcome, TaskOutcome
from services.scaler.money.accounting import Spending
from services.scaler.money.budget import closing_usd, smallest_budget_usd
from services.scaler.money.gradient_pricing import worst_calls_usd, worst_update_usd
from services.scaler.refusals import ApiError
from shared.cache.gradients import GradientCache, GradientRound
from shared.contracts.gradients import (
    GradientCall,
    GradientReport,
    GradientRequest,
    GradientTask,
)
from shared.contracts.job_spec import JobSpec
from shared.contracts.leases import hash_of_lease
from tests.services.scaler.money.test_accounting import attempt
from tests.services.scaler.money.test_accounting_spending import NOW, held
from tests.services.scaler.money.test_budget import PRICING, basis
from tests.services.scaler.services_without_network import Inline, do, settle
from tests.services.scaler.simulated_job import Told

BASIS = basis()
SPEC = JobSpec(preset="standard", learner="functions", hyperparameters={"num_epochs": 3})
CLOSING_USD = closing_usd(SPEC, PRICING)
CALLS = 3 * SPEC.learner_functions.slices


class HeldInvoker(Invoker[GradientTask, GradientReport]):
    """Learner functions that end when they are told to."""

    def __init__(self) -> None:
        self.tasks: list[GradientTask] = []
        self._ends: list[Told[GradientTask, GradientReport]] = []

    async def pause(self, seconds: float) -> bool:
        await asyncio.Event().wait()
        return False

    async def run(
        self,
        tasks: Iterable[GradientTask],
        on_outcome: Callable[[GradientOutcome], Awaitable[None]],
        awaited: Awaited | None = None,
    ) -> None:
        begun = [*tasks]
        ends = [Told(on_outcome) for _ in begun]
        self.tasks += begun
        self._ends += ends
        await asyncio.gather(*(end.heard() for end in ends))

    def end(self, *, billed_s: float = 0.05, failed: bool = False) -> None:
        """End the oldest that runs."""
        task, end = self.tasks.pop(0), self._ends.pop(0)
        report = GradientReport(
            job_id=task.job_id,
            round=task.round,
            call=task.call.call,
            outcome="stored",
            fetch_s=0.0,
            compute_s=0.0,
            push_s=0.0,
            total_s=billed_s,
            cold_start=False,
        )
        end.tell(
            TaskOutcome(
                task=task,
                report=None if failed else report,
                reason="killed" if failed else "",
                billed_s=(billed_s,),
                requests=1,
            )
        )
        settle()


class Rig:
    """The service on a store of its own."""

    def __init__(
        self, path: Path, cache: GradientCache, *, budget_usd: float, **changes: object
    ) -> None:
        self.book = Book(SqliteTable(path), now=lambda: NOW)
        self.invoker, self.cache = HeldInvoker(), cache
        stop = SPEC.stop.model_copy(update={"budget_usd": budget_usd})
        record = held(attempt(2))
        job = record.job.model_copy(update={"spec": SPEC.model_copy(update={"stop": stop})})
        do(self.book.create(record.model_copy(update={"job": job, **changes})))
        self.start()

    def start(self) -> None:
        """Start a service anew, as after a restart."""
        self.service = GradientService(
            book=self.book,
            invoker=self.invoker,
            cache=self.cache,
            cache_thread=Inline(),
            now=lambda: NOW,
            spending=Spending(basis=BASIS, clock="wall"),
            slack_s=10.0,
        )

    def record(self) -> JobRecord:
        record = self.book.job("job")
        assert record is not None
        return record

    def ask(self, number: int, *calls: int, lease_id: str = "lease", round_index: int = 2) -> bool:
        """Ask and launch; return whether anything new was launched."""
        request = GradientRequest(
            lease_id=lease_id,
            request=number,
            calls=tuple(GradientCall(call=call, base=7) for call in calls),
        )
        before = len(self.invoker.tasks)
        grant = do(self.service.ask("job", round_index, request))
        assert grant.granted or grant.reason
        return len(self.invoker.tasks) > before


@contextmanager
def opened_rig(folder: Path, cache_url: str) -> Iterator[Rig]:
    with GradientCache(cache_url) as cache:
        made = Rig(folder / "jobs.sqlite3", cache, budget_usd=100.0)
        yield made
        made.book.close()


@pytest.fixture
def rig(tmp_path: Path, cache_url: str) -> Iterator[Rig]:
    with opened_rig(tmp_path, cache_url) as made:
        yield made


def test_a_request_is_launched_once_however_often_it_is_asked_for(rig: Rig) -> None:
    assert [rig.ask(0, 0, 1) for _ in range(3)] == [True, False, False]
    assert rig.ask(1, 2)
    assert [task.call.call for task in rig.invoker.tasks] == [0, 1, 2]
    assert rig.service.flights.in_flight(only="job") == 3
    (task, *_) = rig.invoker.tasks
    assert task.lease_hash == hash_of_lease("lease")
    assert task.deadline_at == NOW + 2 * 15.0 + 10.0


def test_money_for_an_updates_calls_is_reserved_before_the_first_is_launched(rig: Rig) -> None:
    before = rig.record()
    rig.ask(0, 0)
    after = rig.record()
    assert after.reserved_usd - before.reserved_usd == pytest.approx(worst_update_usd(SPEC, BASIS))
    assert worst_update_usd(SPEC, BASIS) == pytest.approx(worst_calls_usd(CALLS, BASIS))
    version = after.version
    rig.ask(1, 1)
    assert rig.record().version == version, "no write for each request"
    rig.ask(2, *range(2, CALLS + 1))
    assert sum(each.num_calls for each in rig.record().open_gradients) > CALLS


def test_what_ended_is_booked_when_the_round_is_over(rig: Rig) -> None:
    rig.ask(0, 0, 1)
    rig.invoker.end(billed_s=0.1)
    do(rig.service.close("job", before=3, but="lease"))
    assert rig.record().open_gradients, "one of them is still under way"
    rig.invoker.end(billed_s=0.2)
    record = rig.record()
    assert record.open_gradients == ()
    lines = {line.item: line for line in rig.book.lines("job")}
    gb = 1769 / 1024
    assert lines["gradient_duration"].quantity == pytest.approx(0.3 * gb)
    assert lines["gradient_requests"].quantity == 2.0
    assert {line.round for line in lines.values()} == {2}
    assert record.settled_usd == pytest.approx(sum(x.amount_usd for x in lines.values()))


def test_a_further_update_of_a_round_reserves_for_what_runs_and_bills_what_ended(rig: Rig) -> None:
    for update in range(3):
        first = update * CALLS
        assert rig.ask(update, *range(first, first + CALLS))
        for _ in range(CALLS - 1):
            rig.invoker.end(billed_s=0.1)
        running = update + 1
        (reserved,) = rig.record().open_gradients
        assert reserved.num_calls == update + CALLS, "one update, and one call of each before"
        assert rig.service.flights.in_flight(only="job") == running
    do(rig.service.close("job"))
    for _ in range(3):
        rig.invoker.end(billed_s=0.1)
    record = rig.record()
    assert record.open_gradients == ()
    requests = [x.quantity for x in rig.book.lines("job") if x.item == "gradient_requests"]
    assert sum(requests) == 3 * CALLS
    assert record.settled_usd == pytest.approx(sum(x.amount_usd for x in rig.book.lines("job")))


def test_what_ended_is_billed_once_although_the_answer_to_the_write_was_lost(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.ask(0, *range(CALLS))
    for _ in range(CALLS):
        rig.invoker.end(billed_s=0.1)
    write = SqliteTable.write

    def lossy(*args: object, **kwargs: object) -> None:
        monkeypatch.setattr(SqliteTable, "write", write)
        write(*args, **kwargs)  # type: ignore[arg-type]
        raise StoreError("the answer was lost")

    monkeypatch.setattr(SqliteTable, "write", lossy)
    with pytest.raises(StoreError, match="the answer was lost"):
        rig.ask(1, CALLS)
    assert rig.ask(1, CALLS)
    rig.invoker.end(billed_s=0.1)
    do(rig.service.close("job"))
    requests = [x.quantity for x in rig.book.lines("job") if x.item == "gradient_requests"]
    assert sum(requests) == CALLS + 1


def test_calls_of_a_process_that_ended_are_billed_at_their_worst(rig: Rig) -> None:
    rig.ask(0, 0, 1)
    reserved_usd = rig.record().open_gradients[0].reserved_usd
    rig.start()
    do(rig.service.adopt_orphans())
    record = rig.record()
    assert record.open_gradients == ()
    assert record.settled_usd == pytest.approx(reserved_usd)
    assert rig.ask(0, 0, 1), "what the learner still waits for is launched again"
    assert rig.record().open_gradients


def test_a_lost_call_is_told_to_the_learner(rig: Rig) -> None:
    rig.ask(4, 9)
    rig.invoker.end(failed=True)
    of = GradientRound(job_id="job", lease_hash=hash_of_lease("lease"), round=2)
    ((arrival, payload),) = rig.cache.wait_gradients(of, timeout_s=5.0)
    assert (arrival.call, arrival.request, arrival.failed) == (9, 4, "killed")
    assert not arrival.vanished
    assert payload is None


def test_nothing_is_launched_that_the_budget_has_no_room_for(
    tmp_path: Path, cache_url: str
) -> None:
    pricing = PRICING.with_learner("cpu")
    with GradientCache(cache_url) as cache:
        budget_usd = 0.5 + CLOSING_USD
        made = Rig(tmp_path / "poor", cache, budget_usd=budget_usd, closing_usd=CLOSING_USD)
        assert not made.ask(0, 0)
        assert made.invoker.tasks == []
        made.book.close()
    update_usd = worst_update_usd(SPEC, pricing.basis)
    on_cores = SPEC.model_copy(update={"learner": "cpu"})
    more_usd = smallest_budget_usd(SPEC, pricing) - smallest_budget_usd(on_cores, pricing)
    assert more_usd == pytest.approx(update_usd)


@pytest.mark.parametrize(
    ("changes", "granted"),
    [
        ({}, True),
        ({"closing_usd": CLOSING_USD + 0.01}, False),
        ({"held_carry_s": 1.0 / BASIS.usd_per_s}, False),
    ],
    ids=["as planned", "a dearer end after a slow round", "time beyond what was set aside"],
)
def test_gradients_are_launched_only_if_the_budget_pays_for_all_that_a_job_has_a_claim_to(
    tmp_path: Path, cache_url: str, changes: dict[str, object], granted: bool
) -> None:
    budget_usd = 0.5 + CLOSING_USD + worst_calls_usd(1, BASIS) + 1e-9
    with GradientCache(cache_url) as cache:
        made = Rig(
            tmp_path / "jobs",
            cache,
            budget_usd=budget_usd,
            **{"closing_usd": CLOSING_USD} | changes,
        )
        assert made.ask(0, 0) == granted
        if granted:
            claimed_usd = made.service.spending.claimed_usd(made.record(), NOW)
            assert claimed_usd == pytest.approx(budget_usd)
        made.book.close()


@pytest.mark.parametrize(
    ("lease_id", "round_index", "status"), [("another", 2, 409), ("lease", 3, 422)]
)
def test_who_does_not_hold_the_job_or_names_another_round_is_refused(
    rig: Rig, lease_id: str, round_index: int, status: int
) -> None:
    with pytest.raises(ApiError) as refused:
        rig.ask(0, 0, lease_id=lease_id, round_index=round_index)
    assert refused.value.status == status
    assert rig.invoker.tasks == []


def test_money_that_is_set_aside_launches_nothing_once_the_lease_is_lost(rig: Rig) -> None:
    rig.ask(0, 0)
    lost = LeaseRecord(lease_id="next", learner_id="other", expires_at=NOW + 30.0)

    def take_over(record: JobRecord) -> Change:
        return Change(record=record.model_copy(update={"lease": lost}))

    do(rig.book.change("job", take_over))
    for number in (0, 1):
        with pytest.raises(ApiError) as refused:
            rig.ask(number, number)
        assert refused.value.status == 409
    assert len(rig.invoker.tasks) == 1


def test_nothing_is_granted_in_a_round_that_is_closed_while_calls_are_under_way(rig: Rig) -> None:
    rig.ask(0, 0)
    do(rig.service.close("job"))
    for number in (0, 1):
        with pytest.raises(ApiError) as refused:
            rig.ask(number, number)
        assert refused.value.status == 409
    assert len(rig.invoker.tasks) == 1


def test_a_request_that_comes_twice_at_once_is_launched_and_billed_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.ask(0, *range(CALLS))
    for _ in range(CALLS):
        rig.invoker.end(billed_s=0.1)
    request = GradientRequest(
        lease_id="lease",
        request=1,
        calls=tuple(GradientCall(call=call, base=7) for call in range(CALLS, 2 * CALLS)),
    )
    table, run = rig.book._table, rig.book._table.run

    async def slowly(call: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        return await run(call)

    async def twice() -> None:
        await asyncio.gather(*(rig.service.ask("job", 2, request) for _ in range(2)))

    monkeypatch.setattr(table, "run", slowly)
    do(twice())
    assert rig.service.flights.in_flight(only="job") == CALLS
    do(rig.service.close("job"))
    for _ in range(CALLS):
        rig.invoker.end(billed_s=0.1)
    lines = [line for line in rig.book.lines("job") if line.item == "gradient_requests"]
    assert sum(line.quantity for line in lines) == 2 * CALLS
    seconds = [line for line in rig.book.lines("job") if line.item == "gradient_duration"]
    assert sum(line.quantity for line in seconds) == pytest.approx(0.2 * CALLS * 1769 / 1024)


def test_a_job_that_computes_its_own_gradients_is_refused(rig: Rig) -> None:
    record = rig.record()
    spec = record.job.spec.model_copy(update={"learner": "cpu"})
    job = record.job.model_copy(update={"spec": spec, "job_id": "other"})
    do(rig.book.create(record.model_copy(update={"job": job})))
    request = GradientRequest(lease_id="lease", request=0, calls=(GradientCall(call=0, base=0),))
    with pytest.raises(ApiError):
        do(rig.service.ask("other", 2, request))


def test_owed_money_counts_what_is_reserved(rig: Rig) -> None:
    spending = Spending(basis=BASIS, clock="wall")
    before = spending.owed_usd(rig.record(), NOW)
    rig.ask(0, 0)
    more_usd = spending.owed_usd(rig.record(), NOW) - before
    assert more_usd == pytest.approx(worst_update_usd(SPEC, BASIS))


def test_what_the_store_refused_to_book_is_booked_with_the_next_look(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.ask(0, 0)
    do(rig.service.close("job"))
    with monkeypatch.context() as broken:
        broken.setattr(rig.book._table, "write", _refuse)
        rig.invoker.end(billed_s=0.1)
    assert rig.record().open_gradients
    for _ in range(2):  # once more books nothing twice
        do(rig.service.close("job"))
    assert rig.record().open_gradients == ()
    lines = {line.item: line.quantity for line in rig.book.lines("job")}
    assert lines["gradient_requests"] == 1.0


def test_what_was_reserved_without_an_answer_and_not_asked_for_again_is_freed_at_the_jobs_end(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = rig.book._table.write

    def forget(*items: Any, **expected: Any) -> None:
        write(*items, **expected)
        raise StoreError("the answer is lost")

    with monkeypatch.context() as broken:
        broken.setattr(rig.book._table, "write", forget)
        with pytest.raises(StoreError, match="lost"):
            rig.ask(0, 0)
    assert rig.record().open_gradients
    assert rig.invoker.tasks == []
    rig.service.end(rig.record())
    do(rig.service.flights.catch_up("job"))
    assert rig.record().open_gradients == ()
    assert rig.book.lines("job") == []


def _refuse(*_: object, **__: object) -> None:
    raise StoreError("throttled")
