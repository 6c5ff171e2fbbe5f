"""How much should be on, as a function of values."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scaler.book.records import JobRecord, LearnerStart, LeaseRecord
from services.scaler.capacity.decision import (
    ALWAYS_UNRESERVED,
    GRACE_S,
    WARM_BEFORE_LEASE_S,
    CapacityRule,
    allowed_until,
    clients_gone_at,
    environments_allowed,
    environments_wanted,
    limits_at,
)
from services.scaler.capacity.keep_alive import environments_to_keep
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
    held_since: float | None = None,
    asked_at: float | None = NOW,
) -> JobRecord:
    """A job whose learner was asked for, by default just now."""
    job = Job(
        job_id="hopper-1",
        spec=JobSpec.model_validate({"actors": {"min": 1, "max": most}}),
        environment=HOPPER,
        status=status,
        created_at=NOW,
    )
    start = None
    if asked_at is not None:
        start = LearnerStart(number=1, at=asked_at, since=asked_at, num_leases=0)
    return JobRecord(
        job=job,
        start=start,
        queued_at=queued_at,
        wall_started_at=wall_started_at,
        accounted_until=held_since,
    )


def rule(
    *,
    provisioned: int = 64,
    starts_learner: bool = True,
    longest_job_s: float = HOUR,
    reserved: int | None = None,
    spent_at: float = math.inf,
) -> CapacityRule:
    return CapacityRule(
        provisioned=provisioned,
        starts_learner=starts_learner,
        longest_job_s=longest_job_s,
        reserved=reserved,
        spent_at=lambda _record, _now: spent_at,
    )


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
    assert environments_wanted((), rule(), NOW) == 0
    ended = [record(status) for status in sorted(FINISHED)]
    assert environments_wanted(ended, rule(), NOW) == 0
    assert allowed_until(ended, rule(), NOW) == {}


@pytest.mark.parametrize("status", ["queued", "running", "stopping"])
def test_a_job_that_has_not_ended_keeps_environments_on(status: JobStatus) -> None:
    assert environments_wanted([record(status, most=16)], rule(), NOW) == 16


def test_where_a_learner_is_always_there_a_queued_job_opens_nothing() -> None:
    here = rule(starts_learner=False)
    assert environments_wanted([record("queued", asked_at=None)], here, NOW) == 0
    assert environments_wanted([record("running", asked_at=None)], here, NOW) == 64


def test_jobs_side_by_side_need_all_of_theirs_and_never_get_more_than_the_setting() -> None:
    less, least = (record().model_copy(update={"warm": warm}) for warm in (30, 12))
    assert environments_wanted([less, least], rule(), NOW) == 42
    assert environments_wanted([less, least], rule(provisioned=20), NOW) == 20
    assert environments_wanted([less, least, record()], rule(), NOW) == 64


@pytest.mark.parametrize(
    ("unreserved", "granted"), [(1000, 64), (164, 64), (163, 63), (101, 1), (100, 0), (10, 0)]
)
def test_a_hundred_executions_stay_unreserved(unreserved: int, granted: int) -> None:
    assert environments_allowed(64, rule(), unreserved=unreserved) == granted


def test_what_is_on_is_not_given_up_for_the_limit() -> None:
    # AWS may count it as reserved already; shrinking for that would swing for ever.
    assert environments_allowed(64, rule(), configured=64, unreserved=100) == 64


def test_reserved_concurrency_is_the_bound_where_there_is_some() -> None:
    assert environments_allowed(64, rule(reserved=40), unreserved=0) == 40


def test_a_job_has_its_time_from_its_first_round_however_long_it_was_queued() -> None:
    waited = record("queued", queued_at=NOW - 50 * HOUR)
    assert limits_at([waited], rule(), NOW)["hopper-1"] > NOW
    held = record(queued_at=NOW - 50 * HOUR, held_since=NOW - 20)
    assert limits_at([held], rule(), NOW) == {"hopper-1": NOW - 20 + HOUR + GRACE_S}
    started = held.model_copy(update={"wall_started_at": NOW - 10, "accounted_until": NOW})
    assert allowed_until([started], rule(), NOW) == {"hopper-1": NOW - 10 + HOUR + GRACE_S}
    assert limits_at([started], rule(), NOW) == {"hopper-1": NOW - 10 + HOUR + GRACE_S}


def test_a_job_without_money_keeps_nothing_on() -> None:
    lease = LeaseRecord(lease_id="lease", learner_id="x", expires_at=NOW + HOUR)
    usual = record(wall_started_at=NOW).model_copy(update={"lease": lease, "environments": 64})
    pinged = usual.job.model_copy(
        update={"spec": usual.job.spec.model_copy(update={"warm": "reuse"})}
    )
    reusing = usual.model_copy(update={"job": pinged})
    poor = rule(spent_at=NOW + 60)
    for now, kept in ((NOW + 59, True), (NOW + 60, False)):
        assert environments_wanted([usual], poor, now) == 64 * kept
        assert environments_to_keep([reusing], poor, now) == 64 * kept
    assert limits_at([usual], poor, NOW) == {"hopper-1": NOW + 60}
    assert allowed_until([usual], poor, NOW) == {"hopper-1": NOW + 60}


def test_pings_end_with_the_time_of_a_job() -> None:
    lease = LeaseRecord(lease_id="lease", learner_id="x", expires_at=NOW + 9 * HOUR)
    spec = JobSpec.model_validate({"warm": "reuse"})
    stuck = record(wall_started_at=NOW)
    stuck = stuck.model_copy(
        update={
            "job": stuck.job.model_copy(update={"spec": spec}),
            "lease": lease,
            "environments": 8,
        }
    )
    end = NOW + HOUR + GRACE_S
    assert [environments_to_keep([stuck], rule(), now) for now in (end - 1, end)] == [8, 0]


def test_environments_are_not_kept_warm_for_a_learner_that_does_not_come() -> None:
    lease = LeaseRecord(lease_id="lease", learner_id="x", expires_at=NOW + HOUR)
    waiting = record("queued", most=8)
    running = record(most=4, asked_at=None).model_copy(update={"lease": lease})
    for waited_s, warm in ((WARM_BEFORE_LEASE_S - 1, 8), (WARM_BEFORE_LEASE_S, 0)):
        now = NOW + waited_s
        assert environments_wanted([waiting], rule(), now) == warm
        assert environments_wanted([waiting, running], rule(), now) == warm + 4


def test_a_job_that_waits_for_others_to_make_room_keeps_nothing_warm() -> None:
    assert environments_wanted([record("queued", asked_at=None)], rule(), NOW) == 0
    # What was asked for before it was queued again is of the time before.
    again = record("queued", queued_at=NOW, asked_at=NOW - 1)
    assert environments_wanted([again], rule(), NOW) == 0


def test_a_job_that_has_lost_its_learner_keeps_them_until_another_may_be_there() -> None:
    lost = LeaseRecord(lease_id="lease", learner_id="x", expires_at=NOW)
    job = record(asked_at=None, wall_started_at=NOW).model_copy(update={"lease": lost})
    for passed_s, warm in ((WARM_BEFORE_LEASE_S - 1, 64), (WARM_BEFORE_LEASE_S, 0)):
        assert environments_wanted([job], rule(), NOW + passed_s) == warm


def test_jobs_side_by_side_have_all_of_their_idle_environments_pinged() -> None:
    spec = JobSpec.model_validate({"warm": "reuse"})
    lease = LeaseRecord(lease_id="lease", learner_id="x", expires_at=NOW + HOUR)
    held = record()
    held = held.model_copy(
        update={
            "job": held.job.model_copy(update={"spec": spec}),
            "lease": lease,
            "environments": 8,
        }
    )
    fewer = held.model_copy(update={"environments": 3})
    assert environments_to_keep([held, fewer], rule(), NOW) == 11


def test_a_record_from_before_there_was_a_time_of_queueing_counts_from_its_creation() -> None:
    until = {"hopper-1": NOW + HOUR + GRACE_S}
    assert allowed_until([record(queued_at=None)], rule(), NOW) == until


@given(st.lists(records, max_size=5), rules, st.integers(0, 5000), st.integers(0, 3000))
def test_whatever_the_jobs_the_bounds_hold(
    jobs: list[JobRecord], rule: CapacityRule, unreserved: int, configured: int
) -> None:
    wanted = environments_wanted(jobs, rule, NOW)
    allowed = environments_allowed(wanted, rule, configured=configured, unreserved=unreserved)
    assert 0 <= allowed <= wanted <= rule.provisioned
    most = max(configured, unreserved - ALWAYS_UNRESERVED)
    assert allowed <= (most if rule.reserved is None else rule.reserved)
    until = allowed_until(jobs, rule, NOW).values()
    assert until or wanted == 0
    assert all(end > NOW for end in until)


@given(
    records.filter(lambda r: r.wall_started_at is not None),
    rules,
)
def test_when_the_time_allowed_is_over_nothing_is_on(job: JobRecord, rule: CapacityRule) -> None:
    for until in allowed_until([job], rule, NOW).values():
        assert math.isinf(until) or environments_wanted([job], rule, until) == 0


def external(
    status: JobStatus, *, queued_at: float = NOW, expires_at: float | None = None
) -> JobRecord:
    waiting = record(status, queued_at=queued_at)
    job = waiting.job.model_copy(update={"learner": "external"})
    lease = None
    if expires_at is not None:
        lease = LeaseRecord(lease_id="lease-1", learner_id="pool-1", expires_at=expires_at)
    return waiting.model_copy(update={"job": job, "lease": lease})


def test_no_learner_starts_and_nothing_is_warm_before_an_external_job_is_leased() -> None:
    waiting = external("queued")
    assert environments_wanted([waiting], rule(), NOW) == 0
    assert allowed_until([waiting], rule(), NOW) == {}
    held = external("running", expires_at=NOW + 30)
    assert environments_wanted([held], rule(), NOW) == 64


def test_an_external_job_ends_a_while_after_its_client_was_heard_of() -> None:
    within = replace(rule(), client_grace_s=60.0)
    held = external("running", expires_at=NOW + 30)
    assert clients_gone_at([held], within) == {"hopper-1": NOW + 90}
    waiting = external("queued", queued_at=NOW)
    assert clients_gone_at([waiting], within) == {"hopper-1": NOW + 60}


def test_an_external_job_that_should_stop_waits_for_no_other_client() -> None:
    stopping = external("stopping", expires_at=NOW + 30)
    assert clients_gone_at([stopping], rule()) == {"hopper-1": NOW + 30}


def test_other_jobs_and_those_that_ended_have_no_client_to_wait_for() -> None:
    assert clients_gone_at([record("queued"), external("stopped")], rule()) == {}
