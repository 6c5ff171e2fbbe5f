"""Whole jobs on a simulated clock: real desks, store and account, made-up durations."""

import asyncio
import math
import random
import shutil
import weakref
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Generic, TypeVar

from services.scaler.book.book import Book
from services.scaler.book.records import JobRecord
from services.scaler.book.sqlite import SqliteTable
from services.scaler.capacity.decision import CapacityRule, limits_at
from services.scaler.jobs.rescaling import switch_scaling_policy
from services.scaler.launching.invoker import ActorInvoker, Awaited, Invoker
from services.scaler.launching.tasks import RolloutOutcome, TaskOutcome
from services.scaler.money.accounting import Spending
from services.scaler.money.budget import RoundPricing, least_pricing, smallest_budget_usd
from services.scaler.money.ledger import Clock
from shared.contracts.gradients import GradientReport, GradientTask
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, ScalingRequest, StopReason
from shared.contracts.leases import FinishRequest
from shared.contracts.message import Message
from shared.contracts.rollouts import ActorReport, RolloutTask
from shared.contracts.rounds import RoundPlan, RoundRequest, RoundResult, RoundTiming
from shared.contracts.scaling_spec import FixedScaling
from shared.money.costs import CostBasis
from shared.money.prices import AWS_US_EAST_1_2026_11
from tests.services.scaler.lambda_endpoint import HOPPER
from tests.services.scaler.running import curvature, result
from tests.services.scaler.services_without_network import (
    ALLOWANCE_S,
    SLACK_S,
    TIMEOUT_S,
    Services,
    do,
    settle,
)

T = TypeVar("T", bound=Message)
R = TypeVar("R", bound=ActorReport | GradientReport)


class Told(Generic[T, R]):
    """An outcome that is heard of once it is told."""

    def __init__(
        self,
        on_outcome: Callable[[TaskOutcome[T, R]], Awaitable[None]],
        outcome: TaskOutcome[T, R] | None = None,
    ) -> None:
        self._on_outcome = on_outcome
        self._outcome = outcome
        self._end: asyncio.Future[TaskOutcome[T, R]] = asyncio.get_running_loop().create_future()

    def tell(self, outcome: TaskOutcome[T, R] | None = None) -> None:
        told = outcome or self._outcome
        assert told is not None
        if not self._end.done():  # its process may have ended
            self._end.set_result(told)

    async def heard(self) -> None:
        await self._on_outcome(await self._end)


@dataclass
class ChanceInvoker(ActorInvoker):
    """Actors that take random times and fail at random; the scaler hears of them when told to."""

    chance: random.Random
    cruel: bool
    """Whether everything takes as long as it can."""
    now: Callable[[], float] = lambda: 0.0
    unheard: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    """With the moment each actor ended."""
    longest_s: float = 0.0
    launches: int = 0

    async def run(
        self,
        tasks: Iterable[RolloutTask],
        on_outcome: Callable[[RolloutOutcome], Awaitable[None]],
        awaited: Awaited | None = None,
    ) -> None:
        self.launches += 1
        told = []
        extreme = self.cruel or self.chance.random() < 0.2
        for task in tasks:
            executions = 2 if extreme else self.chance.choice((1, 1, 1, 2))
            times = [TIMEOUT_S if extreme else self._duration_s() for _ in range(executions)]
            self.longest_s = max(self.longest_s, sum(times))
            outcome = TaskOutcome(
                task=task,
                report=None if extreme or self.chance.random() < 0.1 else _report(task, times[-1]),
                reason="made up",
                billed_s=tuple(times),
                requests=executions,
                throttled=0,
            )
            end = Told(on_outcome, outcome)
            self.unheard.append((self.now() + sum(times), end.tell))
            told.append(end.heard())
        await asyncio.gather(*told)

    def _duration_s(self) -> float:
        return min(TIMEOUT_S, self.chance.expovariate(1 / self.chance.choice((1.0, 20.0))))

    def hear(self, until: float = math.inf) -> None:
        """Tell of the actors that ended by then."""
        heard = [tell for at, tell in self.unheard if at <= until]
        self.unheard = [(at, tell) for at, tell in self.unheard if at > until]
        for tell in heard:
            tell()
        settle()

    async def pause(self, seconds: float) -> bool:
        return False

    async def close(self, *, wait_s: float) -> bool:
        return True


def _report(task: RolloutTask, rollout_s: float) -> ActorReport:
    return ActorReport(
        job_id=task.job_id,
        round=task.round,
        actor_index=task.actor_index,
        mode=task.mode,
        outcome="stored",
        steps=task.steps,
        episode_returns=(),
        episode_lengths=(),
        rollout_s=rollout_s,
        total_s=rollout_s,
        cold_start=False,
        payload_bytes=1,
    )


def random_basis(chance: random.Random) -> CostBasis:
    """A deployment with prices between a tenth and ten times of AWS's."""

    def price(usual: float) -> float:
        return usual * 10 ** chance.uniform(-1, 1)

    table = AWS_US_EAST_1_2026_11
    prices = table.model_copy(
        update={
            name: price(getattr(table, name))
            for name in (
                "lambda_usd_per_gb_s",
                "lambda_usd_per_request",
                "provisioned_usd_per_gb_s",
                "provisioned_duration_usd_per_gb_s",
            )
        }
    )
    return CostBasis(
        prices=prices,
        learner_usd_per_s=price(3e-4),
        cpu_learner_usd_per_s=price(3e-5),
        cache_usd_per_s=price(2e-5),
        scaler_usd_per_s=price(4e-6),
        memory_mb=chance.choice((512, 1024, 1769, 3008)),
        function_timeout_s=TIMEOUT_S,
        provisioned=chance.choice((0, 4, 64)),
        cold_start_s=chance.choice((0.0, 2.0)),
        ping_every_s=chance.choice((5.0, 240.0, math.inf)),
    )


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """Where a job stood when it was told to end."""

    plan: RoundPlan
    """The first that says so."""
    committed_usd: float
    """But for what that plan sets aside itself."""
    longest_learner_s: float


class SimulatedScaler(Services):
    """The scaler without network: one job at a time on a clock that jumps."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 1000.0
        self.held_s = 0.0
        """For how long learners have held the job."""
        folder = mkdtemp(prefix="nitro-simulated-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.book = Book(SqliteTable(Path(folder) / "nitro.db"), now=lambda: self.now)
        self.basis = random_basis(self.chance)
        self.clock: Clock = self.chance.choice(("wall", "projected"))
        self.cruel = self.chance.random() < 0.3
        self.invoker = ChanceInvoker(self.chance, cruel=self.cruel, now=lambda: self.now)
        self.spending = Spending(basis=self.basis, clock=self.clock)
        self._wire()

    def _wire(self, functions: Invoker[GradientTask, GradientReport] | None = None) -> None:
        self.wire(
            self.invoker,
            self.spending,
            lease_ttl_s=1e6,
            warm=lambda: self.chance.choice((0, self.basis.provisioned)),
            functions=functions,
        )

    def hang(self, spec: JobSpec) -> None:
        """Begin a job whose learner goes silent but for its heartbeats, in one of its rounds."""
        lease_id = self._begin(spec)
        results: list[RoundResult] = []
        for _ in range(self.chance.randint(0, 3)):
            if self._ask(len(results), lease_id, results).stop is not None:
                break
            results.append(self._result(len(results)))
        self._hear_nothing_more(lease_id)

    def _hear_nothing_more(self, lease_id: str) -> None:
        """Look at the job when the scaler would, with a learner that only says it is there."""
        record = self.record()
        told_at = max(self.now, self.spending.exhausted_at(record, self.now))
        self.now = told_at
        assert do(self.leases.heartbeat(lease_id)).stop == "budget"
        while self.record().job.status == "running":
            rule = CapacityRule(
                provisioned=0,
                starts_learner=True,
                longest_job_s=math.inf,
                reserved=None,
                spent_at=self.spending.spent_at,
            )
            (ends_at,) = limits_at([self.record()], rule, self.now).values()
            do(self.leases.heartbeat(lease_id))
            self.now = max(self.now, ends_at)
            do(self.jobs.expire("job"))
        self.held_s += self.now
        self.invoker.hear()

    def check_claims(self) -> None:
        """Check the ledger's invariant."""
        record = self.record()
        claimed_usd = self.spending.claimed_usd(record, self.now)
        assert claimed_usd <= record.job.spec.stop.budget_usd * (1 + 1e-9)

    def record(self) -> JobRecord:
        """The job as it is stored."""
        record = self.book.job("job")
        assert record is not None
        return record

    def fewest_warm(self, spec: JobSpec) -> int:
        """How few environments such a job keeps warm when its money ends."""
        return spec.actors.min

    def pricing(self, spec: JobSpec, longest_learner_s: float = 0.0) -> RoundPricing:
        """The worst case as the scaler prices it when a job's money ends."""
        pricing = RoundPricing(
            basis=self.basis,
            deadline_slack_s=SLACK_S,
            learner_allowance_s=max(ALLOWANCE_S, 2 * longest_learner_s),
        )
        return least_pricing(spec, "gpu", pricing)

    def random_spec(self, scaling: dict[str, object]) -> JobSpec:
        """A job with money for one round, or for several."""
        fewest = self.chance.randint(1, 4)
        spec = JobSpec.model_validate(
            {
                "actors": {"min": fewest, "max": fewest + self.chance.choice((0, 3, 8, 60))},
                "evaluation": {
                    "every_rounds": self.chance.randint(0, 3),
                    "episodes": self.chance.randint(1, 4),
                },
                "scaling": scaling,
                "warm": self.chance.choice((None, "auto", "provisioned", "reuse", "none")),
                "seed": self.chance.randint(0, 1000),
                "stop": {"max_rounds": 8},
            }
        )
        return self._with_money(spec, most=5.0)

    def _with_money(self, spec: JobSpec, *, most: float) -> JobSpec:
        """A job with the least budget, or up to so many times as much."""
        least_usd = smallest_budget_usd(spec, self.pricing(spec))
        budget_usd = least_usd * self.chance.choice((1.0, self.chance.uniform(1.0, most)))
        stop = spec.stop.model_copy(update={"budget_usd": budget_usd * (1 + 1e-9)})
        return spec.model_copy(update={"stop": stop})

    def run(self, spec: JobSpec) -> Stopped:
        """Train a job to its end."""
        lease_id = self._begin(spec)
        results: list[RoundResult] = []
        for _ in range(1000):
            if spec.actors.min < spec.actors.max and self.chance.random() < 0.1:
                self._switch(spec)
            plan = self._ask(len(results), lease_id, results)
            if plan.stop is None and self.chance.random() < 0.15:
                plan = self._ask(len(results), lease_id, results, attempt=1)
            if plan.stop is not None:
                stopped = self._stopped(plan)
                self._end(lease_id, plan.stop)
                return stopped
            if self.chance.random() < 0.1:
                lease_id = self._next_learner(lease_id)
                if results and self.chance.random() < 0.5:
                    # The newest checkpoints cannot be read: rounds are made, and paid for, again.
                    del results[-self.chance.randint(1, 2) :]
                    continue
                self._again(lease_id, results, plan)
            results.append(self._result(len(results)))
        raise AssertionError("a job without end")

    def _begin(self, spec: JobSpec) -> str:
        job = Job(job_id="job", spec=spec, environment=HOPPER, status="queued", created_at=self.now)
        do(self.book.create(JobRecord(job=job, queued_at=self.now)))
        return self._lease()

    def _stopped(self, plan: RoundPlan) -> Stopped:
        record = self.record()
        # A plan that ends a job while other rounds are open sets nothing aside.
        own = [a.reserved_usd for a in record.open_attempts if a.round == plan.round]
        return Stopped(
            plan=plan,
            committed_usd=record.committed_usd - sum(own[-1:]),
            longest_learner_s=record.longest_learner_s,
        )

    def _switch(self, spec: JobSpec) -> None:
        num_actors = self.chance.choice((spec.actors.min, spec.actors.max))
        pinned = FixedScaling(policy="fixed", num_actors=num_actors)
        request = ScalingRequest(scaling=pinned)
        do(switch_scaling_policy(self.book, "job", request, now=self.now))

    def _lease(self) -> str:
        lease = do(self.leases.claim("learner"))
        assert lease is not None
        self.held_s -= self.now
        return lease.lease_id

    def _next_learner(self, lease_id: str) -> str:
        """A learner gives up, and others take the job some time later, of which one goes on."""
        while True:
            self.now += self.chance.uniform(0, 1)
            do(self.leases.give_up(lease_id))
            self.held_s += self.now
            self.now += 500.0
            lease_id = self._lease()
            if self.chance.random() < 0.7:
                return lease_id

    def _again(self, lease_id: str, results: Sequence[RoundResult], plan: RoundPlan) -> None:
        """A learner that took over asks for the round in hand: it gets the same plan."""
        again = self._ask(len(results), lease_id, results, attempt=plan.attempt)
        assert again.num_actors == plan.num_actors

    def _ask(
        self, index: int, lease_id: str, results: Sequence[RoundResult], attempt: int = 0
    ) -> RoundPlan:
        if self.chance.random() < 0.8:
            self.invoker.hear()
        request = RoundRequest(
            lease_id=lease_id,
            policy_version=index,
            attempt=attempt,
            previous=results[-1] if results else None,
            curvature=curvature(self.chance.uniform(0.1, 3.0), -1.0),
        )
        plan, launched = self.planned(index, request)
        if launched:
            waited_s = min(plan.deadline_s, self.invoker.longest_s)
            late = self.cruel or self.chance.random() < 0.1
            self.now += plan.deadline_s if late else waited_s
        return plan

    def planned(self, index: int, request: RoundRequest) -> tuple[RoundPlan, bool]:
        """Ask for a round; return its plan and whether it was launched."""
        before, self.invoker.longest_s = self.invoker.launches, 0.0
        plan = do(self.rounds.plan("job", index, request))
        self.check_claims()
        return plan, self.invoker.launches > before

    def _result(self, index: int) -> RoundResult:
        slow = self.cruel or self.chance.random() < 0.2
        learner_s = ALLOWANCE_S if slow else self.chance.uniform(0, 30)
        self.now += learner_s
        timing = dict.fromkeys(RoundTiming.model_fields, 0.0)
        timing |= {"update_s": learner_s, "total_s": learner_s}
        return result(index, timing=RoundTiming.model_validate(timing))

    def _end(self, lease_id: str, stop: StopReason) -> None:
        if self.chance.random() < 0.8:
            self.invoker.hear()
        self.now += self.chance.uniform(0, ALLOWANCE_S)
        request = FinishRequest(lease_id=lease_id, status="succeeded", stop_reason=stop)
        do(self.finishing.finish("job", request))
        self.held_s += self.now
        self.hear_all()

    def hear_all(self) -> None:
        """Tell of everything that ended."""
        self.invoker.hear()
