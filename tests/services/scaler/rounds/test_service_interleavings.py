"""Overlapping rounds by simulation: random orders of everything that can happen to a job.

The round desk, the leases, the account and the database are the real ones; learner, actors and time
are played. Whatever the order, money spent and set aside stays within the budget and every launch
happens once.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scaler.book.book import Book
from services.scaler.book.records import JobRecord
from services.scaler.book.sqlite import SqliteTable
from services.scaler.book.table import Expected, Item, Key, StoreError
from services.scaler.launching.invoker import Awaited, Invoker
from services.scaler.launching.tasks import RolloutOutcome, TaskOutcome
from services.scaler.money.accounting import Spending
from services.scaler.money.budget import RoundPricing, smallest_budget_usd
from services.scaler.money.ledger import Clock
from services.scaler.refusals import ApiError
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, ResumeRequest
from shared.contracts.leases import FinishRequest
from shared.contracts.rollouts import ActorReport, RolloutTask
from shared.contracts.rounds import RoundPlan, RoundRequest
from tests.services.scaler.lambda_endpoint import HOPPER
from tests.services.scaler.money.test_budget import basis, with_budget
from tests.services.scaler.running import curvature, result
from tests.services.scaler.services_without_network import (
    ALLOWANCE_S,
    TIMEOUT_S,
    Services,
    do,
    settle,
)
from tests.services.scaler.simulated_job import Told

_LEASE_S = 5.0
_STEPS = 80


class Played(Invoker[RolloutTask, ActorReport]):
    """Invocations that end when, and after as long as, the simulation says."""

    def __init__(self) -> None:
        self.flying: list[tuple[RolloutTask, Told[RolloutTask, ActorReport]]] = []
        self.launched: Counter[tuple[int, int, str, int]] = Counter()

    async def run(
        self,
        tasks: Iterable[RolloutTask],
        on_outcome: Callable[[RolloutOutcome], Awaitable[None]],
        awaited: Awaited | None = None,
    ) -> None:
        ends = [(task, Told(on_outcome)) for task in tasks]
        self.flying += ends
        self.launched.update((t.round, t.attempt, t.mode, t.actor_index) for t, _ in ends)
        await asyncio.gather(*(end.heard() for _, end in ends))

    async def pause(self, seconds: float) -> bool:
        return False

    async def close(self, *, wait_s: float) -> bool:
        return True


class ForgetfulTable(SqliteTable):
    """Fails to say, when it is told to, that it has written a round."""

    forgets = False

    def write(self, puts: Sequence[Item], deletes: Sequence[Key] = (), *, expect: Expected) -> None:
        super().write(puts, deletes, expect=expect)
        if self.forgets and any(item.key[1].startswith("ROUND#") for item in puts):
            self.forgets = False
            raise StoreError("the answer is lost")


class World(Services):
    """A scaler that can be restarted, and the learner of its one job."""

    table: ForgetfulTable

    def __init__(self, spec: JobSpec, folder: Path, *, clock: Clock, seed: int) -> None:
        self.random = random.Random(seed)
        self.extremes = self.random.choice((0.2, 1.0))
        """How often everything takes as long as it may."""
        self.spec, self.clock = spec, clock
        self.played = Played()
        self._folder = folder
        self.launched: Counter[tuple[int, int, str, int]] = Counter()
        """Launches since the job was last started."""
        self.start()
        job = Job(job_id="job", spec=spec, environment=HOPPER, status="queued", created_at=0.0)
        do(self.book.create(JobRecord(job=job, queued_at=0.0)))
        self.closed = 0
        self.plans: dict[int, RoundPlan] = {}
        self.deadlines: dict[int, float] = {}
        self.take_lease()

    def start(self) -> None:
        """Start a scaler on the database; what is in flight ends unheard."""
        self.played = Played()
        self.table = ForgetfulTable(self._folder / "nitro.sqlite3")
        self.book = Book(self.table, now=lambda: self.now)
        self.spending = Spending(basis=basis(), clock=self.clock)
        self.wire(self.played, self.spending, lease_ttl_s=_LEASE_S)

    @property
    def record(self) -> JobRecord:
        record = self.book.job("job")
        assert record is not None
        return record

    @property
    def over(self) -> bool:
        """Whether the learner has the job's last plan."""
        stops = [plan for plan in self.plans.values() if plan.stop is not None]
        return len(stops) == self.spec.open_rounds

    @property
    def open_now(self) -> set[int]:
        """Rounds the learner has not reported the end of."""
        oldest = max(self.closed, max(self.plans, default=0) - self.spec.open_rounds + 1)
        return {n for n, plan in self.plans.items() if n >= oldest and plan.stop is None}

    def take_lease(self) -> None:
        lease = do(self.leases.claim("learner"))
        assert lease is not None
        self.lease_id = lease.lease_id
        self.asked = self.closed

    def request(self, index: int) -> RoundRequest:
        before = index - self.spec.open_rounds
        timing = result(0).timing.model_copy(
            update={"update_s": self.learner_s, "curvature_s": 0.0, "checkpoint_s": 0.0}
        )
        return RoundRequest(
            lease_id=self.lease_id,
            policy_version=index,
            curvature=curvature(1.0 + index % 3, -1.0),
            # The round before the newest checkpoint, and that one only, is known to be over.
            previous=result(before, timing=timing) if before == self.closed - 1 >= 0 else None,
        )

    learner_s = 0.0

    def ask(self, index: int) -> None:
        self.table.forgets = self.random.random() < 0.2
        before = self.played.launched.copy()
        try:
            plan = do(self.rounds.plan("job", index, self.request(index)))
        except StoreError:
            plan = do(self.rounds.plan("job", index, self.request(index)))
        self.table.forgets = False
        self.launched += self.played.launched - before
        assert max(self.launched.values(), default=0) <= 1, "launched twice"
        launched = sum(key[0] == index and key[2] == "sample" for key in self.launched)
        assert launched == plan.num_actors, "not launched"
        known = self.plans.get(index)
        if known is not None:
            assert plan.model_copy(update={"age_s": 0.0}) == known
        self.plans[index] = plan.model_copy(update={"age_s": 0.0})
        self.deadlines.setdefault(index, self.now + plan.deadline_s)

    # --- what can happen --------------------------------------------------------------------

    def open_next(self) -> None:
        if self.asked < self.closed + self.spec.open_rounds:
            self.ask(self.asked)
            self.asked += 1

    def ask_again(self) -> None:
        if self.asked > self.closed:
            self.ask(self.random.randrange(self.closed, self.asked))

    def close_oldest(self) -> None:
        """Wait for the oldest round, at most to its deadline, then work on it."""
        oldest = self.plans.get(self.closed)
        filled = self.asked == self.closed + self.spec.open_rounds
        if oldest is None or oldest.stop is not None or not filled:
            return
        extreme = self.random.random() < self.extremes
        longest_s = max(0.0, self.deadlines[self.closed] - self.now)
        self.now += longest_s if extreme else self.random.uniform(0.0, longest_s)
        self.learner_s = ALLOWANCE_S if extreme else self.random.uniform(0.0, ALLOWANCE_S)
        self.now += self.learner_s
        self.closed += 1

    def land(self) -> None:
        """Some invocations end, after any time up to the time-out, once or twice."""
        for _ in range(self.random.choice((1, 4, 1000))):
            if not self.played.flying:
                return
            at = self.random.randrange(len(self.played.flying))
            task, end = self.played.flying.pop(at)
            times = 2 if self.random.random() < self.extremes else 1
            longest = self.random.random() < self.extremes
            billed = tuple(
                TIMEOUT_S if longest else self.random.uniform(0, TIMEOUT_S) for _ in range(times)
            )
            end.tell(
                TaskOutcome(
                    task=task,
                    report=None,
                    reason="played",
                    billed_s=billed,
                    requests=times,
                    throttled=0,
                )
            )
            settle()

    def change_learner(self) -> None:
        """The learner hands the job back; the next resumes from the newest checkpoint."""
        do(self.leases.give_up(self.lease_id))
        self.take_lease()

    def restart_scaler(self) -> None:
        self.book.close()
        self.start()
        do(self.rounds.adopt_orphans())
        do(self.leases.extend_all())

    def fail_and_resume(self) -> None:
        """The job ends in the middle, and its user wants it to go on."""
        failed = FinishRequest(lease_id=self.lease_id, status="failed", stop_reason="error")
        do(self.finishing.finish("job", failed))
        try:
            do(self.jobs.resume("job", ResumeRequest()))
        except ApiError:
            self.plans.clear()
            return
        self.forget_from(self.closed)
        self.take_lease()

    def lose_checkpoints(self) -> None:
        """A learner dies, and the next finds only an older checkpoint."""
        # The scaler hears of a round's end with the request for the `open_rounds`-th after it. A
        # learner that goes back to a round it has not heard the end of gets the same plan.
        told = min(self.closed, self.asked - self.spec.open_rounds)
        if told <= 0:
            return
        self.closed = self.random.randrange(told)
        self.forget_from(self.closed)
        self.change_learner()

    def forget_from(self, index: int) -> None:
        for number in [n for n in self.plans if n >= index]:
            del self.plans[number]
            del self.deadlines[number]
        for key in [key for key in self.launched if key[0] >= index]:
            del self.launched[key]


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32),
    clock=st.sampled_from(("wall", "projected")),
    open_rounds=st.integers(1, 4),
    headroom=st.floats(1.0, 12.0),
)
def test_whatever_the_order_nothing_is_overspent_and_all_is_launched_once(
    seed: int, clock: Clock, open_rounds: int, headroom: float
) -> None:
    spec = overlapping_spec(open_rounds=open_rounds, headroom=headroom)
    with TemporaryDirectory() as folder:
        world = World(spec, Path(folder), clock=clock, seed=seed)
        play_world(world)
        _check_bill(world)
        world.book.close()


def overlapping_spec(*, open_rounds: int, headroom: float) -> JobSpec:
    """A job of twelve rounds with so many times the least budget."""
    spec = JobSpec.model_validate(
        {
            "algorithm": "impala",
            "rounds_in_flight": open_rounds,
            "actors": {"min": 2, "max": 6},
            "evaluation": {"every_rounds": 2, "episodes": 2},
            "stop": {"max_rounds": 12},
        }
    )
    pricing = RoundPricing(
        basis=basis(), deadline_slack_s=10.0, learner_allowance_s=2 * ALLOWANCE_S
    )
    return with_budget(spec, smallest_budget_usd(spec, pricing) * headroom)


def play_world(world: World) -> None:
    """Let things happen to a job at random until it is over, checking it all the while."""
    often = [world.open_next, world.open_next, world.close_oldest, world.land]
    seldom = [
        world.ask_again,
        world.change_learner,
        world.restart_scaler,
        world.fail_and_resume,
        world.lose_checkpoints,
    ]
    budget = world.spec.stop.budget_usd * (1 + 1e-9)
    for _ in range(_STEPS):
        world.random.choice(seldom if world.random.random() < 0.1 else often)()
        assert world.spending.claimed_usd(world.record, world.now) <= budget
        reserved = {a.round for a in world.record.open_attempts if a.held_s is None}
        assert world.open_now <= reserved
        if world.over or world.record.lease is None:
            break
    if world.record.lease is not None:
        world.land()
        stopped = FinishRequest(lease_id=world.lease_id, status="stopped", stop_reason="user")
        do(world.finishing.finish("job", stopped))
    while world.played.flying:
        world.land()


def _check_bill(world: World) -> None:
    assert world.record.settled_usd <= world.spec.stop.budget_usd * (1 + 1e-9)
    assert world.record.open_attempts == ()
    lines = world.book.lines("job")
    assert sum(line.amount_usd for line in lines) == pytest.approx(world.record.settled_usd)
    if world.clock == "wall":
        # Every second is billed, and to one round only.
        held_s = sum(line.quantity for line in lines if line.item == "learner")
        assert held_s == pytest.approx(world.now)
