"""The hard cap, by simulation: random jobs through the real decisions and the real account."""

import random
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scaler.money.accounting import end_round, land, settle_ready
from services.scaler.money.budget import (
    RoundPricing,
    affordable_closing,
    affordable_round,
    closing_usd,
    smallest_budget_usd,
)
from services.scaler.money.ledger import NOTHING_LAUNCHED, Clock
from services.scaler.rounds.decision import (
    Concurrency,
    RoundContext,
    StopConditions,
    decide_reopening,
    decide_round,
)
from services.scaler.scaling.base import ScalingHistory
from services.scaler.store.base import JobRecord, LaunchOutcome, OpenAttempt
from shared.contracts.billing import LedgerLine
from shared.contracts.job_spec import EvaluationRule, JobSpec
from shared.contracts.jobs import Job
from shared.contracts.rounds import LaunchCounts, RoundPlan
from shared.money.costs import CostBasis
from shared.money.prices import AWS_US_EAST_1_2026_11
from tests.services.scaler.lambda_endpoint import HOPPER

TABLE = AWS_US_EAST_1_2026_11
SPEC = JobSpec.model_validate({"actors": {"min": 2, "max": 16}, "evaluation": {"episodes": 3}})


def basis(*, provisioned: int = 0) -> CostBasis:
    return CostBasis(
        prices=TABLE,
        learner_usd_per_s=TABLE.learner_usd_per_s("g6.2xlarge"),
        cache_usd_per_s=TABLE.cache_usd_per_s("cache.t4g.medium", "valkey"),
        scaler_usd_per_s=TABLE.scaler_usd_per_s(vcpu=0.25, memory_gb=0.5),
        memory_mb=1024,
        function_timeout_s=60.0,
        provisioned=provisioned,
    )


PRICING = RoundPricing(basis=basis(), deadline_slack_s=10.0, learner_allowance_s=60.0)
HELD_USD_PER_S = (0.9776 + 0.052 + 0.0123425) / 3600
"""Learner, cache and scaler of `basis`, from the price table by hand."""


def with_budget(spec: JobSpec, budget_usd: float) -> JobSpec:
    return spec.model_copy(update={"stop": spec.stop.model_copy(update={"budget_usd": budget_usd})})


def test_a_round_is_priced_to_its_deadline_and_one_that_launches_nothing_has_none() -> None:
    twice_usd = 2 * (60 * 0.0000166667 + 0.0000002)  # with 1 GB, to the time-out
    waiting_s = 2 * 60 + 10
    assert PRICING.worst_case_usd(1) == pytest.approx(twice_usd + (waiting_s + 60) * HELD_USD_PER_S)
    assert PRICING.worst_case_usd(0) == pytest.approx(60 * HELD_USD_PER_S)


@pytest.mark.parametrize(("longest_s", "allowed_s"), [(0, 60), (30, 60), (31, 62), (100, 200)])
def test_the_next_round_may_take_the_learner_twice_as_long_as_any_before_it(
    longest_s: float, allowed_s: float
) -> None:
    slower = PRICING.after(longest_s)
    assert slower.worst_case_usd(0) == pytest.approx(allowed_s * HELD_USD_PER_S)


def test_only_a_job_that_evaluates_leaves_money_for_its_final_evaluation() -> None:
    blind = SPEC.model_copy(update={"evaluation": EvaluationRule(every_rounds=0, episodes=3)})
    learner_usd = 60 * HELD_USD_PER_S
    assert closing_usd(SPEC, PRICING) == pytest.approx(PRICING.worst_case_usd(3))
    assert closing_usd(blind, PRICING) == pytest.approx(learner_usd)
    assert smallest_budget_usd(blind, PRICING) == pytest.approx(
        PRICING.worst_case_usd(2) + learner_usd
    )


def test_a_quota_below_the_fewest_actors_is_no_lack_of_money() -> None:
    spec = with_budget(SPEC, PRICING.worst_case_usd(1) + closing_usd(SPEC, PRICING) + 1e-9)
    got = affordable_round(spec, PRICING, num_actors=1, num_evaluations=0, committed_usd=0.0)
    assert (got.num_actors, got.note) == (1, "")


def test_the_smallest_budget_buys_exactly_the_smallest_round() -> None:
    least = smallest_budget_usd(SPEC, PRICING)
    got = affordable_round(
        with_budget(SPEC, least), PRICING, num_actors=16, num_evaluations=3, committed_usd=0.0
    )
    assert (got.num_actors, got.num_evaluations) == (2, 0)
    assert "evaluation left out" in got.note
    below = affordable_round(
        with_budget(SPEC, least * 0.999),
        PRICING,
        num_actors=16,
        num_evaluations=3,
        committed_usd=0.0,
    )
    assert (below.num_actors, below.num_evaluations, below.reserve_usd) == (0, 0, 0.0)
    assert below.note.startswith("budget: 2 actors may cost")


def test_a_round_shrinks_before_it_is_given_up() -> None:
    wanted = PRICING.worst_case_usd(7 + 3) + closing_usd(SPEC, PRICING)
    got = affordable_round(
        with_budget(SPEC, wanted + 1e-9),
        PRICING,
        num_actors=16,
        num_evaluations=3,
        committed_usd=0.0,
    )
    assert (got.num_actors, got.num_evaluations) == (7, 3)
    assert "16 actors cut to 7" in got.note
    assert got.reserve_usd == pytest.approx(PRICING.worst_case_usd(10))


@pytest.mark.parametrize("affordable", range(2, 17))
def test_a_round_has_all_the_actors_there_is_money_for(affordable: int) -> None:
    budget_usd = PRICING.worst_case_usd(affordable) + closing_usd(SPEC, PRICING) + 1e-9
    got = affordable_round(
        with_budget(SPEC, budget_usd), PRICING, num_actors=16, num_evaluations=0, committed_usd=0.0
    )
    assert got.num_actors == affordable


def test_plenty_of_money_changes_nothing() -> None:
    got = affordable_round(SPEC, PRICING, num_actors=16, num_evaluations=3, committed_usd=0.0)
    assert (got.num_actors, got.num_evaluations, got.note) == (16, 3, "")


def test_the_final_evaluation_is_launched_whole_or_not_at_all() -> None:
    price = PRICING.worst_case_usd(3)
    spec = with_budget(SPEC, 1.0)
    enough = affordable_closing(spec, PRICING, committed_usd=1.0 - price - 1e-9, num_evaluations=3)
    short = affordable_closing(spec, PRICING, committed_usd=1.0 - price + 1e-6, num_evaluations=3)
    assert (enough.num_evaluations, short.num_evaluations) == (3, 0)
    assert short.note == "budget: no final evaluation"
    exact = affordable_closing(
        with_budget(SPEC, price), PRICING, committed_usd=0.0, num_evaluations=3
    )
    spent = affordable_closing(spec, PRICING, committed_usd=1.0, num_evaluations=3)
    assert (exact.num_evaluations, exact.reserve_usd) == (3, price)
    assert (spent.num_actors, spent.num_evaluations, spent.reserve_usd) == (0, 0, 0.0)


class SimulatedJob:
    """A job whose actors and learner take random times up to their worst case."""

    def __init__(self, spec: JobSpec, *, clock: Clock, provisioned: int, seed: int) -> None:
        job = Job(job_id="job", spec=spec, environment=HOPPER, status="running", created_at=0.0)
        self.basis = basis(provisioned=provisioned)
        self.pricing = RoundPricing(
            basis=self.basis, deadline_slack_s=10.0, learner_allowance_s=60.0
        )
        self.record = JobRecord(job=job, accounted_until=0.0)
        self.clock: Clock = clock
        self.random = random.Random(seed)
        self.now = 0.0
        self.lines: list[LedgerLine] = []
        self.stopped: str | None = None
        self.always_extreme = False
        self.learner_s = 0.0

    def run(self) -> None:
        for index in range(1000):
            plan = self.ask(index, None)
            if plan is not None and plan.stop is None and self.random.random() < 0.3:
                plan = self.ask(index, plan)
            if plan is None or plan.stop is not None:
                self.end()
                self.stopped = "" if plan is None else plan.stop
                return

    def ask(self, index: int, reopened: RoundPlan | None) -> RoundPlan | None:
        self.book_time()
        context = RoundContext(
            spec=self.record.job.spec,
            conditions=StopConditions(
                round_index=index, asked_to_stop=False, latest_return=None, wall_s=0.0
            ),
            curvature=None,
            gradient_noise=None,
            committed_usd=self.record.committed_usd,
            settled_usd=self.record.settled_usd,
            concurrency=Concurrency(limit=1000, running_jobs=1, others_in_flight=0),
            pricing=self.pricing,
            quorum_share=0.5,
            history=ScalingHistory(policy=self.record.job.spec.scaling),
        )
        if reopened is None:
            decision = decide_round(context)
            launched = decision.num_actors + decision.num_evaluations
        else:
            decision = decide_reopening(
                context, reopened, num_missing=reopened.num_actors, attempt=1
            )
            launched = decision.num_evaluations if decision.stop else reopened.num_actors
        attempt = OpenAttempt(
            round=index,
            attempt=int(reopened is not None),
            lease_id="lease",
            num_invocations=launched,
            reserved_usd=decision.reserve_usd,
            warm=self.random.choice((0, launched)),
            outcome=None if launched else NOTHING_LAUNCHED,
        )
        attempts = (*self.record.open_attempts, attempt)
        self.record = self.record.model_copy(update={"open_attempts": attempts})
        assert self.record.committed_usd <= self.record.job.spec.stop.budget_usd * (1 + 1e-9)
        self.play(attempt, decision.deadline_s)
        return RoundPlan(
            job_id="job",
            round=index,
            attempt=attempt.attempt,
            policy_version=index,
            num_actors=decision.num_actors,
            num_evaluations=decision.num_evaluations,
            requested=decision.requested,
            boosting_score=decision.score,
            ratio=decision.ratio,
            reason=decision.reason,
            deadline_s=decision.deadline_s,
            quorum=decision.quorum,
            stop=decision.stop,
            spent_usd=self.record.settled_usd,
            settled=(),
        )

    def play(self, attempt: OpenAttempt, deadline_s: float) -> None:
        """Let actors and learner take their time; sometimes all of it."""
        extreme = self.always_extreme or self.random.random() < 0.3
        self.learner_s = 60.0 if extreme else self.random.uniform(0, 60)
        waiting_s = deadline_s if extreme else self.random.uniform(0, deadline_s)
        self.now += waiting_s + self.learner_s
        if not attempt.num_invocations:
            return
        executions = [
            [60.0, 60.0]
            if extreme
            else [self.random.uniform(0, 60) for _ in range(self.random.choice((1, 1, 2)))]
            for _ in range(attempt.num_invocations)
        ]
        outcome = LaunchOutcome(
            counts=LaunchCounts(requested=0, succeeded=0, failed=0, reissued=0, throttled=0),
            requests=sum(len(task) for task in executions),
            durations_s=tuple(d for task in executions for d in task),
            slowest_sample_s=max(sum(task) for task in executions),
            slowest_evaluation_s=0.0,
        )
        self.record = land(self.record, ("job", attempt.round, attempt.attempt, "lease"), outcome)

    def book_time(self) -> None:
        self.record, held = end_round(
            self.record, learner_s=self.learner_s, now=self.now, basis=self.basis, clock=self.clock
        )
        self.record, settled = settle_ready(self.record, self.basis, self.clock)
        self.lines += [*held, *settled]

    def end(self) -> None:
        self.book_time()
        assert self.record.open_attempts == ()


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    clock=st.sampled_from(("wall", "projected")),
    provisioned=st.sampled_from((0, 8, 64)),
    actors=st.tuples(st.integers(1, 40), st.integers(0, 40)),
    episodes=st.integers(1, 20),
    every=st.integers(0, 3),
    headroom=st.floats(1.0, 20.0),
)
def test_spend_never_exceeds_the_budget(
    seed: int,
    clock: Clock,
    provisioned: int,
    actors: tuple[int, int],
    episodes: int,
    every: int,
    headroom: float,
) -> None:
    fewest, more = actors
    spec = JobSpec.model_validate(
        {
            "actors": {"min": fewest, "max": fewest + more},
            "evaluation": {"every_rounds": every, "episodes": episodes},
            "stop": {"max_rounds": 30},
        }
    )
    pricing = RoundPricing(
        basis=basis(provisioned=provisioned), deadline_slack_s=10.0, learner_allowance_s=60.0
    )
    spec = with_budget(spec, smallest_budget_usd(spec, pricing) * headroom)
    job = SimulatedJob(spec, clock=clock, provisioned=provisioned, seed=seed)
    job.run()
    spent = sum(Decimal(line.quantity) * Decimal(line.unit_price_usd) for line in job.lines)
    assert float(spent) == pytest.approx(job.record.settled_usd, rel=1e-9)
    assert float(spent) <= spec.stop.budget_usd * (1 + 1e-9)
    assert job.stopped in ("budget", "max_rounds")


def test_a_job_out_of_money_still_gets_its_final_evaluation() -> None:
    least = smallest_budget_usd(SPEC, PRICING) * (1 + 1e-9)
    job = SimulatedJob(with_budget(SPEC, least), clock="wall", provisioned=0, seed=1)
    job.always_extreme = True
    first = job.ask(0, None)
    second = job.ask(1, None)
    assert first is not None
    assert second is not None
    assert (first.stop, first.num_actors) == (None, 2)
    assert (second.stop, second.num_actors, second.num_evaluations) == ("budget", 0, 3)
    job.end()
    assert least * 0.8 < job.record.settled_usd <= least
