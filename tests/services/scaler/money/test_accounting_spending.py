"""When a job's money is used up by time, against sums written out."""

import math
from dataclasses import replace

import pytest

from services.scaler.book.attempts import LaunchOutcome, OpenAttempt
from services.scaler.book.records import JobRecord, LeaseRecord
from services.scaler.money.accounting import Spending
from services.scaler.money.ledger import Clock
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.contracts.rounds import LaunchCounts
from shared.contracts.scaling_spec import FixedScaling
from shared.contracts.stop_rule import StopRule
from shared.money.costs import worst_case_launch_usd
from tests.services.scaler.lambda_endpoint import HOPPER
from tests.services.scaler.money.test_budget import basis

NOW = 1_800_000_000.0
BASIS = basis(provisioned=0)
WORST_USD = worst_case_launch_usd(4, BASIS)
CHEAP_USD = 4 * (0.1 * BASIS.memory_gb * BASIS.prices.lambda_usd_per_gb_s) + (
    4 * BASIS.prices.lambda_usd_per_request
)
CHEAP = LaunchOutcome(
    counts=LaunchCounts(requested=4, succeeded=4, failed=0, reissued=0, throttled=0),
    requests=4,
    durations_s=(0.1,) * 4,
    slowest_sample_s=0.1,
    slowest_evaluation_s=0.0,
)


def spending(clock: Clock = "wall") -> Spending:
    return Spending(basis=BASIS, clock=clock)


def held(
    *attempts: OpenAttempt, budget_usd: float = 1.0, settled_usd: float = 0.0, carry_s: float = 0.0
) -> JobRecord:
    """A job that a learner has held since NOW, and will for ten hours."""
    spec = JobSpec(stop=StopRule(budget_usd=budget_usd))
    job = Job(job_id="job", spec=spec, environment=HOPPER, status="running", created_at=NOW)
    lease = LeaseRecord(lease_id="lease", learner_id="x", expires_at=NOW + 36_000)
    return JobRecord(
        job=job,
        lease=lease,
        settled_usd=settled_usd,
        open_attempts=attempts,
        accounted_until=NOW,
        held_carry_s=carry_s,
    )


def attempt(outcome: LaunchOutcome | None, *, held_s: float | None = None) -> OpenAttempt:
    return OpenAttempt(
        round=0,
        attempt=0,
        lease_id="lease",
        num_invocations=4,
        reserved_usd=0.5,
        warm=0,
        outcome=outcome,
        held_s=held_s,
    )


@pytest.mark.parametrize(
    ("record", "owed_usd"),
    [
        (held(), 0.0),
        (held(settled_usd=0.25, carry_s=60.0), 60 * BASIS.usd_per_s),
        (held(attempt(None)), WORST_USD),
        (held(attempt(CHEAP)), CHEAP_USD),
        (
            held(attempt(None, held_s=30.0), attempt(CHEAP)),
            WORST_USD + CHEAP_USD + 30 * BASIS.usd_per_s,
        ),
    ],
    ids=["nothing launched", "time of earlier leases", "in flight", "landed", "both"],
)
def test_actors_count_at_their_worst_until_it_is_known_what_they_cost(
    record: JobRecord, owed_usd: float
) -> None:
    for passed_s in (0.0, 100.0):
        owed = spending().owed_usd(record, NOW + passed_s)
        assert owed == pytest.approx(owed_usd + passed_s * BASIS.usd_per_s)
    left_usd = 1.0 - record.settled_usd - owed_usd
    left_s = spending().exhausted_at(record, NOW) - NOW
    assert left_s == pytest.approx(left_usd / BASIS.usd_per_s)


def test_each_time_counts_with_the_environments_that_were_warm_in_it() -> None:
    ample = basis(provisioned=64)
    environment_usd_per_s = ample.memory_gb * ample.prices.provisioned_usd_per_gb_s
    closed = attempt(CHEAP, held_s=30.0).model_copy(update={"kept_warm": 50})
    record = held(closed, carry_s=10.0).model_copy(update={"warm": 20})
    now_usd_per_s = BASIS.usd_per_s + 20 * environment_usd_per_s
    owed_usd = CHEAP_USD + 30 * (BASIS.usd_per_s + 50 * environment_usd_per_s) + 10 * now_usd_per_s
    on_the_wall = Spending(basis=ample, clock="wall")
    assert on_the_wall.owed_usd(record, NOW) == pytest.approx(owed_usd)
    left_s = on_the_wall.exhausted_at(record, NOW) - NOW
    assert left_s == pytest.approx((1.0 - owed_usd) / now_usd_per_s)


def test_a_round_of_an_earlier_version_counts_with_what_that_kept_warm() -> None:
    ample = basis(provisioned=64)
    environment_usd_per_s = ample.memory_gb * ample.prices.provisioned_usd_per_gb_s
    waiting = held(attempt(CHEAP))
    job = waiting.job.model_copy(
        update={
            "spec": waiting.job.spec.model_copy(
                update={"scaling": FixedScaling(policy="fixed", num_actors=8)}
            )
        }
    )
    owed = Spending(basis=ample, clock="wall").owed_usd(
        waiting.model_copy(update={"job": job}), NOW + 10
    )
    assert owed == pytest.approx(CHEAP_USD + 10 * (BASIS.usd_per_s + 64 * environment_usd_per_s))


def test_a_job_is_told_to_end_while_there_is_money_for_that() -> None:
    record = held().model_copy(update={"closing_usd": 0.25})
    left_s = 1.0 / BASIS.usd_per_s
    assert spending().exhausted_at(record, NOW) - NOW == pytest.approx(0.75 * left_s)
    assert spending().spent_at(record, NOW) - NOW == pytest.approx(left_s)


def test_environments_that_pings_started_count_before_they_are_billed() -> None:
    cold = replace(BASIS, cold_start_s=2.0)
    record = held().model_copy(update={"cold_pings": 1000})
    owed_usd = 1000 * 2.0 * cold.memory_gb * cold.prices.lambda_usd_per_gb_s
    on_the_wall = Spending(basis=cold, clock="wall")
    assert on_the_wall.owed_usd(record, NOW) == pytest.approx(owed_usd)
    left_s = on_the_wall.spent_at(record, NOW) - NOW
    assert left_s == pytest.approx((1.0 - owed_usd) / cold.usd_per_s)


def test_a_lease_that_ends_before_that_ends_the_time_that_counts() -> None:
    record = held(budget_usd=1e6)
    late = NOW + 1e9
    assert spending().exhausted_at(record, late) == math.inf
    assert spending().owed_usd(record, late) == pytest.approx(36_000 * BASIS.usd_per_s)


@pytest.mark.parametrize(("carry_s", "expected"), [(0.0, math.inf), (1e9, -math.inf)])
def test_a_job_that_nobody_holds_has_spent_it_or_has_not(carry_s: float, expected: float) -> None:
    free = held(carry_s=carry_s).model_copy(update={"lease": None, "accounted_until": None})
    assert spending().exhausted_at(free, NOW) == expected


def test_a_projection_costs_nothing_by_time() -> None:
    record = held(attempt(None), carry_s=1e9)
    assert spending("projected").owed_usd(record, NOW + 1e9) == 0.0
    assert spending("projected").exhausted_at(record, NOW) == math.inf


def test_what_is_owed_beyond_what_was_set_aside_is_not_for_another_round() -> None:
    record = held(attempt(CHEAP), settled_usd=0.25).model_copy(update={"closing_usd": 0.125})
    late = NOW + 2.0 / BASIS.usd_per_s
    assert spending().committed_usd(record, NOW) == 0.25 + 0.5
    assert spending().committed_usd(record, late) == pytest.approx(0.25 + CHEAP_USD + 2.0)
    assert spending().claimed_usd(record, late) == pytest.approx(0.375 + CHEAP_USD + 2.0)
    assert spending("projected").committed_usd(record, late) == 0.25 + 0.5
