"""How much should be on, as a function of values."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scaler.capacity.decision import (
    ALWAYS_UNRESERVED,
    GRACE_S,
    WARM_BEFORE_LEASE_S,
    Capacity,
    CapacityRule,
    ConcurrencyRoom,
    allowed_until,
    desired_capacity,
    overdue,
)
from services.scaler.store.base import JobRecord
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import FINISHED, Job, JobStatus
from tests.services.scaler.lambda_endpoint import HOPPER

NOW = 1_800_000_000.0
HOUR = 3600.0


def record(
    status: JobStatus = "running",
    *,
    most: int = 64,
    queued_at: float | None = NOW,
    wall_started_at: float | None = None,
) -> JobRecord:
    job = Job(
        job_id="hopper-1",
        spec=JobSpec.model_validate({"actors": {"min": 1, "max": most}}),
        environment=HOPPER,
        status=status,
        created_at=NOW,
    )
    return JobRecord(job=job, queued_at=queued_at, wall_started_at=wall_started_at)


def rule(
    *,
    provisioned: int = 64,
    starts_learner: bool = True,
    longest_job_s: float = HOUR,
    reserved: int | None = None,
    exhausted_at: Callable[[JobRecord], float] = lambda _: math.inf,
) -> CapacityRule:
    return CapacityRule(
        provisioned=provisioned,
        starts_learner=starts_learner,
        longest_job_s=longest_job_s,
        reserved=reserved,
        exhausted_at=exhausted_at,
    )


def room(unreserved: int, configured: int = 0) -> ConcurrencyRoom:
    return ConcurrencyRoom(unreserved=unreserved, configured=configured)


records = st.builds(
    record,
    st.sampled_from(["queued", "running", "stopping", "succeeded", "stopped", "failed"]),
    most=st.integers(1, 3000),
    queued_at=st.one_of(st.none(), st.floats(NOW - 3 * HOUR, NOW)),
    wall_started_at=st.one_of(st.none(), st.floats(NOW - 3 * HOUR, NOW)),
)
rules = st.builds(
    rule,
    provisioned=st.integers(0, 3000),
    starts_learner=st.booleans(),
    longest_job_s=st.one_of(st.floats(1, 4 * HOUR), st.just(math.inf)),
    reserved=st.one_of(st.none(), st.integers(1, 1000)),
)


def test_without_jobs_nothing_is_on() -> None:
    assert desired_capacity((), rule(), None, NOW) == Capacity(provisioned=0, learners=0)
    ended = [record(status) for status in sorted(FINISHED)]
    assert desired_capacity(ended, rule(), None, NOW) == Capacity(provisioned=0, learners=0)
    assert allowed_until(ended, rule(), NOW) is None


@pytest.mark.parametrize("status", ["queued", "running", "stopping"])
def test_a_job_that_has_not_ended_keeps_both_on(status: JobStatus) -> None:
    wanted = desired_capacity([record(status, most=16)], rule(), None, NOW)
    assert wanted == Capacity(provisioned=16, learners=1)


def test_where_a_learner_is_always_there_a_queued_job_opens_nothing() -> None:
    here = rule(starts_learner=False)
    assert desired_capacity([record("queued")], here, None, NOW).provisioned == 0
    assert desired_capacity([record("running")], here, None, NOW) == Capacity(
        provisioned=64, learners=0
    )


def test_the_most_any_job_may_use_is_warm_and_never_more_than_the_setting() -> None:
    jobs = [record(most=8), record(most=32), record(most=100)]
    assert desired_capacity(jobs[:2], rule(), None, NOW).provisioned == 32
    assert desired_capacity(jobs, rule(), None, NOW).provisioned == 64


def test_jobs_keep_as_many_warm_as_the_one_among_them_that_may_ask_for_most() -> None:
    less, least = (record().model_copy(update={"warm": warm}) for warm in (30, 12))
    assert desired_capacity([less, least], rule(), None, NOW).provisioned == 30
    assert desired_capacity([less, least], rule(provisioned=20), None, NOW).provisioned == 20
    assert desired_capacity([less, least, record()], rule(), None, NOW).provisioned == 64


@pytest.mark.parametrize(
    ("unreserved", "granted"), [(1000, 64), (164, 64), (163, 63), (101, 1), (100, 0), (10, 0)]
)
def test_a_hundred_executions_stay_unreserved(unreserved: int, granted: int) -> None:
    wanted = desired_capacity([record()], rule(), room(unreserved), NOW)
    assert (wanted.provisioned, wanted.clipped) == (granted, 64 - granted)
    assert wanted.learners == 1


def test_what_is_on_is_not_given_up_for_the_limit() -> None:
    # AWS may count it as reserved already; shrinking for that would swing for ever.
    assert desired_capacity([record()], rule(), room(100, configured=64), NOW).provisioned == 64


def test_reserved_concurrency_is_the_bound_where_there_is_some() -> None:
    wanted = desired_capacity([record()], rule(reserved=40), room(0), NOW)
    assert (wanted.provisioned, wanted.clipped) == (40, 24)


def test_a_job_has_its_time_from_its_queueing_and_again_from_its_first_round() -> None:
    waited = record("queued", queued_at=NOW - HOUR - GRACE_S)
    assert desired_capacity([waited], rule(), None, NOW).learners == 0
    assert overdue([waited], rule(), NOW) == ["hopper-1"]
    started = waited.model_copy(update={"wall_started_at": NOW - 10})
    assert desired_capacity([started], rule(), None, NOW).learners == 1
    assert allowed_until([started], rule(), NOW) == NOW - 10 + HOUR + GRACE_S
    assert overdue([started], rule(), NOW) == []


def test_a_job_without_money_keeps_nothing_on_beyond_the_time_to_end() -> None:
    usual, spent = record(wall_started_at=NOW), rule(exhausted_at=lambda _: NOW + 60)
    for late_s, expected in ((GRACE_S + 59, []), (GRACE_S + 60, ["hopper-1"])):
        now = NOW + late_s
        assert overdue([usual], spent, now) == expected
        assert desired_capacity([usual], spent, None, now).learners == 1 - len(expected)
    assert allowed_until([usual], spent, NOW) == NOW + 60 + GRACE_S


def test_environments_are_not_kept_warm_for_a_learner_that_does_not_come() -> None:
    waiting, running = record("queued", most=8), record("running", most=4)
    for waited_s, warm in ((WARM_BEFORE_LEASE_S - 1, 8), (WARM_BEFORE_LEASE_S, 0)):
        now = NOW + waited_s
        assert desired_capacity([waiting], rule(), None, now) == Capacity(
            provisioned=warm, learners=1
        )
    assert desired_capacity([waiting, running], rule(), None, now).provisioned == 4


def test_where_a_learner_is_at_work_the_environments_of_those_that_wait_stay_warm() -> None:
    waiting = record("queued", most=8)
    now = NOW + 10 * WARM_BEFORE_LEASE_S
    for ago_s, warm in ((0, 8), (WARM_BEFORE_LEASE_S - 1, 8), (WARM_BEFORE_LEASE_S, 0)):
        wanted = desired_capacity(
            [waiting], rule(longest_job_s=1e9), None, now, learner_seen_at=now - ago_s
        )
        assert wanted == Capacity(provisioned=warm, learners=1)


def test_a_record_from_before_there_was_a_time_of_queueing_counts_from_its_creation() -> None:
    assert allowed_until([record(queued_at=None)], rule(), NOW) == NOW + HOUR + GRACE_S


@given(st.lists(records, max_size=5), rules, st.integers(0, 5000), st.integers(0, 3000))
def test_whatever_the_jobs_the_bounds_hold(
    jobs: list[JobRecord], rule: CapacityRule, unreserved: int, configured: int
) -> None:
    left = room(unreserved, configured)
    wanted = desired_capacity(jobs, rule, left, NOW)
    assert 0 <= wanted.provisioned <= rule.provisioned
    most = max(configured, unreserved - ALWAYS_UNRESERVED, 0)
    assert wanted.provisioned <= (most if rule.reserved is None else rule.reserved)
    assert wanted.learners in (0, 1)
    until = allowed_until(jobs, rule, NOW)
    if until is None:
        assert (wanted.provisioned, wanted.learners) == (0, 0)
    else:
        assert until > NOW


@given(st.lists(records, max_size=5), rules)
def test_when_the_time_allowed_is_over_nothing_is_on(
    jobs: list[JobRecord], rule: CapacityRule
) -> None:
    until = allowed_until(jobs, rule, NOW)
    if until is None or math.isinf(until):
        return
    after = desired_capacity(jobs, rule, None, until)
    assert (after.provisioned, after.learners) == (0, 0)
