"""What is set aside for a round: its worst case, and which of its actors start cold."""

import pytest

from services.scaler.book.attempts import OpenAttempt
from services.scaler.book.records import JobRecord
from services.scaler.launching.orders import LaunchOrder
from services.scaler.money.ledger import NOTHING_LAUNCHED
from services.scaler.rounds.decision import Decision
from services.scaler.rounds.record import reserved
from shared.contracts.jobs import StopReason
from shared.contracts.rounds import RoundPlan
from tests.services.scaler.book.records import record
from tests.services.scaler.money.test_accounting_spending import NOW, attempt, held

JOB = record().job


def order(
    num_samples: int, num_evaluations: int = 0, *, stop: StopReason | None = None
) -> LaunchOrder:
    plan = RoundPlan(
        job_id="job",
        round=7,
        attempt=1,
        policy_version=7,
        num_actors=num_samples,
        num_evaluations=num_evaluations,
        requested=num_samples,
        boosting_score=None,
        ratio=None,
        reason="",
        deadline_s=130.0,
        quorum=0,
        stop=stop,
        spent_usd=0.0,
        settled=(),
    )
    return LaunchOrder(
        plan=plan,
        lease_id="lease-1",
        job=JOB,
        samples=tuple(range(num_samples)),
        evaluations=tuple(range(num_evaluations)),
    )


def setting_aside(
    record: JobRecord,
    launched: LaunchOrder,
    now: float = NOW,
    *,
    awaits_others: bool = False,
    busy: int = 0,
    ready: int = 0,
) -> JobRecord:
    decision = Decision(plan=launched.plan, reserve_usd=0.25, awaits_others=awaits_others)
    return reserved(record, launched, decision, now, busy=busy, ready=ready)


def opened(
    record: JobRecord,
    size: int = 6,
    *,
    stop: StopReason | None = None,
    busy: int = 0,
    ready: int = 0,
) -> OpenAttempt:
    """The attempt that setting aside adds to the record's."""
    after = setting_aside(record, order(size, stop=stop), busy=busy, ready=ready)
    assert after.open_attempts[:-1] == record.open_attempts
    return after.open_attempts[-1]


def test_a_planned_round_commits_its_worst_case() -> None:
    before = held(attempt(None)).model_copy(update={"num_lines": 9, "reported_lines": 4})
    after = setting_aside(before, order(4, 2), busy=4)
    assert after.committed_usd == pytest.approx(before.committed_usd + 0.25)
    assert after.open_attempts[1] == OpenAttempt(
        round=7,
        attempt=1,
        lease_id="lease-1",
        num_invocations=6,
        num_evaluations=2,
        reserved_usd=0.25,
        warm=0,
        cold=6,
        kept_warm=64,
        deadline_s=130.0,
    )
    assert (after.wall_started_at, after.reported_lines) == (NOW, 9)
    later = setting_aside(after, order(4), NOW + 60)
    assert later.wall_started_at == NOW


@pytest.mark.parametrize(
    ("ready", "busy", "earlier", "warm", "cold"),
    [
        (0, 0, 0, 0, 6),  # a first round without provisioned concurrency
        (4, 0, 0, 4, 2),
        (9, 0, 0, 6, 0),
        (9, 4, 4, 5, 1),  # another open round keeps 4 of the 9
        (3, 4, 4, 0, 6),
        (0, 0, 4, 0, 2),  # 4 were launched before and are idle again
        (0, 0, 9, 0, 0),
        (0, 3, 8, 0, 1),  # of the 8, another open round keeps 3
        (5, 0, 2, 5, 1),
    ],
)
def test_environments_that_are_idle_are_warm_and_the_rest_of_the_round_is_cold(
    ready: int, busy: int, earlier: int, warm: int, cold: int
) -> None:
    record = held().model_copy(update={"environments": earlier})
    got = opened(record, 6, ready=ready, busy=busy)
    assert (got.warm, got.cold) == (warm, cold)


def test_environments_that_are_ready_for_another_job_do_not_count() -> None:
    record = held().model_copy(update={"warm": 4})
    got = opened(record, 6, ready=64, busy=1)
    assert (got.warm, got.cold, got.kept_warm) == (3, 3, 4)


@pytest.mark.parametrize(
    ("earlier", "busy", "after"), [(0, 0, 6), (9, 0, 9), (9, 5, 11), (4, 2, 8)]
)
def test_as_many_environments_are_warm_as_ran_at_a_time(
    earlier: int, busy: int, after: int
) -> None:
    record = held().model_copy(update={"environments": earlier})
    got = setting_aside(record, order(6), busy=busy)
    assert got.environments == after


@pytest.mark.parametrize(
    ("open_rounds", "max_rounds", "stop", "shares"),
    [(4, 100, None, 4), (4, 2, None, 2), (1, 100, None, 1), (4, 100, "max_rounds", 1)],
)
def test_a_round_shares_its_time_with_those_open_beside_it(
    open_rounds: int, max_rounds: int, stop: StopReason | None, shares: int
) -> None:
    record = held()
    spec = record.job.spec
    spec = spec.model_copy(
        update={
            "algorithm": "impact",
            "rounds_in_flight": open_rounds,
            "stop": spec.stop.model_copy(update={"max_rounds": max_rounds}),
        }
    )
    record = record.model_copy(update={"job": record.job.model_copy(update={"spec": spec})})
    assert opened(record, stop=stop).open_rounds == shares


def test_the_end_of_a_job_without_evaluation_has_nothing_to_wait_for() -> None:
    assert opened(held(), 0, stop="user").outcome == NOTHING_LAUNCHED
    assert opened(held(), 1, stop="user").outcome is None


def test_a_job_that_waits_for_its_other_rounds_opens_none() -> None:
    record = held(attempt(None)).model_copy(update={"num_lines": 9})
    after = setting_aside(record, order(0, stop="user"), awaits_others=True, busy=4)
    assert after == record.model_copy(update={"reported_lines": 9, "wall_started_at": NOW})
