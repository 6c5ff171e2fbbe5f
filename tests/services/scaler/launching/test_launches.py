"""What a launch comes to, as it is remembered."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from services.scaler.book.attempts import AttemptKey, LaunchOutcome, OpenAttempt
from services.scaler.book.book import Book
from services.scaler.book.dynamodb import DynamoDbTable
from services.scaler.launching.invoker import ActorInvoker, Awaited
from services.scaler.launching.launches import Launches, search_s
from services.scaler.launching.orders import LaunchOrder
from services.scaler.launching.tasks import RolloutOutcome, TaskOutcome
from services.scaler.metrics import Metrics
from services.scaler.money.accounting import Spending
from services.scaler.money.ledger import Clock
from shared.contracts.leases import hash_of_lease
from shared.contracts.rollouts import ActorReport, RolloutTask, SearchTask
from shared.money.costs import lambda_gb_seconds
from tests.services.scaler.book.records import REGION, make_table, record
from tests.services.scaler.money.test_budget import basis
from tests.services.scaler.rounds.test_order import planned
from tests.services.scaler.services_without_network import Inline, SilentCache, do
from tests.services.scaler.simulated_job import ChanceInvoker

JOB = record().job


def order(num_actors: int) -> LaunchOrder:
    return LaunchOrder(
        plan=planned(0, 0).plan,
        lease_id="lease",
        job=JOB,
        samples=tuple(range(num_actors)),
        evaluations=(),
    )


def test_tasks_name_the_tenure_their_policy_was_published_under_and_not_the_lease() -> None:
    ours, again, another = (
        [*replace(order(2), lease_id=lease_id, evaluations=(0,)).tasks()]
        for lease_id in ("lease", "lease", "another lease")
    )
    assert [len(tasks) for tasks in (ours, another)] == [3, 3]
    assert ours == again
    lease_hashes = {task.lease_hash for task in ours} | {task.lease_hash for task in another}
    assert len(lease_hashes) == 2
    assert not any("lease" in lease_hash or not lease_hash for lease_hash in lease_hashes)


def launch(launches: Launches, made: LaunchOrder) -> None:
    async def begin() -> None:
        launches.launch(made)

    do(begin())


class ToldCache(SilentCache):
    """Remembers whose failures were announced."""

    def __init__(self) -> None:
        self.announced: list[int] = []

    def announce_failure(self, *_: object, **named: Any) -> None:
        self.announced.append(named["actor_index"])


def searched(num_actors: int, *, playing: int) -> float:
    """Return the projected time of three iterations of 16 equal episodes of a second each."""
    search = SearchTask(
        seed=0, directions=8, parts=16, exploration_std=0.1, longest=10, moments=False
    )
    outcomes: list[RolloutOutcome] = []
    for index, made in enumerate(order(num_actors).tasks()):
        played = 3 * 16 // playing if index < playing else 0
        report = ActorReport(
            job_id=made.job_id,
            round=made.round,
            actor_index=made.actor_index,
            mode="sample",
            outcome="stored",
            steps=10 * played,
            episode_returns=(1.0,) * played,
            episode_lengths=(10,) * played,
            rollout_s=1.0 * played,
            total_s=60.0,
            cold_start=False,
            payload_bytes=1,
        )
        task = made.model_copy(update={"search": search})
        outcomes.append(
            TaskOutcome(task=task, report=report, billed_s=(60.0,), requests=1, throttled=0)
        )
    took_s = search_s(outcomes)
    assert took_s is not None
    return took_s


@pytest.mark.parametrize(("num_actors", "takes_s"), [(4, 12.0), (16, 3.0), (32, 3.0)])
@pytest.mark.parametrize("playing", [1, 2, 4])
def test_a_searchs_time_is_that_of_all_its_actors_however_few_played_here(
    num_actors: int, takes_s: float, playing: int
) -> None:
    assert searched(num_actors, playing=playing) == pytest.approx(takes_s)


def landed(num_actors: int, *, clock: Clock = "wall", seed: int = 2) -> LaunchOutcome:
    """Launch actors that take random times and fail at random; return what it came to."""
    invoker = ChanceInvoker(random.Random(seed), cruel=False)
    launches = Launches(
        invoker,
        SilentCache(),
        Inline(),
        Metrics(),
        Spending(basis=basis(), clock=clock),
    )
    outcomes: list[LaunchOutcome] = []
    launches.expect(order(num_actors))

    async def landed(_key: AttemptKey, outcome: LaunchOutcome) -> None:
        outcomes.append(outcome)

    launches.on_landed = landed
    launch(launches, order(num_actors))
    invoker.hear()
    return outcomes[0]


@pytest.mark.parametrize("clock", ["wall", "projected"])
def test_durations_are_remembered_as_lambda_bills_them(clock: Clock) -> None:
    durations_s = landed(40, clock=clock).durations_s
    assert len(set(durations_s)) > 10
    for duration_s in durations_s:
        assert round(duration_s, 3) == duration_s
        # Nothing is added by rounding up what has been rounded up.
        assert lambda_gb_seconds(duration_s, 1024) == duration_s


@pytest.mark.parametrize(
    ("lease_id", "from_round", "told"),
    [("another", 0, False), ("lease", 0, True), ("another", 1, True)],
)
def test_only_launches_of_earlier_leases_keep_quiet_where_rounds_are_made_again(
    lease_id: str, from_round: int, told: bool
) -> None:
    invoker, cache = ChanceInvoker(random.Random(2), cruel=True), ToldCache()
    launches = Launches(invoker, cache, Inline(), Metrics(), Spending(basis=basis(), clock="wall"))
    launches.expect(order(3))
    launch(launches, order(3))
    launches.supersede("job", from_round=from_round, lease_id=lease_id)
    invoker.hear()
    assert cache.announced == ([0, 1, 2] if told else [])


class Waiting(ActorInvoker):
    """Actors that never end."""

    def __init__(self) -> None:
        self.awaited: list[Awaited] = []

    async def run(
        self,
        tasks: Iterable[RolloutTask],
        on_outcome: Callable[[RolloutOutcome], Awaitable[None]],
        awaited: Awaited | None = None,
    ) -> None:
        assert awaited is not None
        self.awaited.append(awaited)
        await asyncio.Event().wait()


def test_actors_are_awaited_until_the_deadline_or_their_jobs_end_and_tell_of_retries() -> None:
    invoker = Waiting()
    launches = Launches(
        invoker,
        SilentCache(),
        Inline(),
        Metrics(),
        Spending(basis=basis(), clock="wall"),
    )
    made = order(3)
    before = time.perf_counter()
    launches.expect(made)
    launch(launches, made)
    (awaited,) = invoker.awaited
    assert before <= awaited.until - made.plan.deadline_s <= time.perf_counter()
    assert awaited.after(made.plan.deadline_s / 2)
    assert not awaited.after(2 * made.plan.deadline_s)

    awaited.on_retry("unreachable", "refused")
    awaited.on_retry("failed", "crashed")
    awaited.on_retry("unreachable", "refused again")
    counts = launches.so_far(made.key)
    assert counts is not None
    assert (counts.failed, counts.reissued, counts.unreached) == (0, 1, 2)
    assert counts.latest_failure == "refused again"

    assert launches.call_off(record("another")) == set()
    assert awaited.after(0.0)
    assert launches.call_off(record("job")) == {hash_of_lease("lease")}
    assert not awaited.after(0.0)


@pytest.mark.usefixtures("aws")
def test_all_rounds_a_job_may_have_open_fit_into_its_record_with_all_their_actors() -> None:
    outcome = landed(3000)
    assert len(set(outcome.durations_s)) > 1000
    attempts = tuple(
        OpenAttempt(
            round=index,
            attempt=0,
            lease_id="lease",
            num_invocations=3000,
            reserved_usd=1.0,
            warm=0,
            outcome=outcome,
        )
        for index in range(8)  # the most rounds_in_flight
    )
    full = record().model_copy(update={"open_attempts": attempts})
    name = make_table()
    book = Book(DynamoDbTable.connect(name, region=REGION), now=lambda: 0.0)
    do(book.create(full))
    book.close()
    book = Book(DynamoDbTable.connect(name, region=REGION), now=lambda: 0.0)
    assert book.job("job") == full.model_copy(update={"position": 1})
    book.close()
