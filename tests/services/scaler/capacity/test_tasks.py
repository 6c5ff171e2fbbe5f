"""Which tasks are run, stopped and given up on, from jobs and tasks as they are found."""

from collections.abc import Sequence

import pytest

from services.scaler.book.records import JobRecord, LearnerStart, LeaseRecord
from services.scaler.capacity.tasks import (
    MOST_STARTS,
    SILENT_S,
    UNSEEN_S,
    FoundTask,
    TaskDecision,
    TaskRule,
    decide_tasks,
)
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.contracts.learner_kind import LearnerKind
from tests.services.scaler.lambda_endpoint import HOPPER

NOW = 1_800_000_000.0
WAIT_S = 1800.0


def queued(
    name: str = "a",
    *,
    learner: LearnerKind = "cpu",
    position: int = 0,
    start: LearnerStart | None = None,
    leases: int = 0,
    leased_until: float | None = None,
    queued_at: float = NOW - 1000,
    least: int = 1,
) -> JobRecord:
    job = Job(
        job_id=name,
        spec=JobSpec.model_validate({"actors": {"min": least, "max": 64}}),
        environment=HOPPER,
        learner=learner,
        status="queued",
        created_at=NOW - 10,
    )
    lease = None
    if leased_until is not None:
        lease = LeaseRecord(lease_id="lease", learner_id="x", expires_at=leased_until)
    return JobRecord(
        job=job,
        position=position,
        start=start,
        lease=lease,
        num_leases=leases,
        queued_at=queued_at,
    )


def started(
    *, task: str | None = "arn-1", at: float = NOW, since: float | None = None, **other: int
) -> LearnerStart:
    fields = {"number": 1, "num_leases": 0} | other
    return LearnerStart(at=at, since=at if since is None else since, task=task, **fields)


def decide(
    jobs: Sequence[JobRecord],
    *tasks: tuple[str, str],
    cpu: int = 10,
    gpu: int = 1,
    concurrency: int | None = None,
    over: bool = False,
    now: float = NOW,
) -> TaskDecision:
    return decide_tasks(
        jobs,
        [FoundTask(arn=arn, job_id=job_id) for arn, job_id in tasks],
        TaskRule(most={"cpu": cpu, "gpu": gpu}, longest_wait_s=WAIT_S),
        now,
        counts=lambda _: not over,
        concurrency=concurrency,
    )


def run(made: TaskDecision) -> dict[str, LearnerStart]:
    return {record.job.job_id: start for record, start in made.run}


def test_every_queued_job_gets_a_task_of_its_own() -> None:
    made = decide([queued("a"), queued("b", position=1)])
    assert {job: (s.number, s.vain, s.task) for job, s in run(made).items()} == {
        "a": (1, 0, None),
        "b": (1, 0, None),
    }
    assert (made.stop, made.given_up, made.waits) == ({}, {}, {})


def test_a_job_with_a_task_or_a_learner_gets_no_other_one() -> None:
    listed = queued("a", start=started(at=NOW - 500))
    just_asked = queued("b", start=started(task="arn-2", at=NOW - UNSEEN_S + 1))
    held = queued("c", leased_until=NOW + 1, leases=1)
    made = decide([listed, just_asked, held], ("arn-1", "a"))
    assert (run(made), made.stop, made.on) == ({}, {}, {"cpu": 3, "gpu": 0})


def test_a_program_of_the_users_own_is_nobodys_task() -> None:
    assert run(decide([queued(learner="external")])) == {}


def test_a_task_of_a_job_that_is_over_is_stopped() -> None:
    made = decide([queued("a")], ("arn-1", "a"), ("arn-2", "ended"), over=True)
    assert made.stop == {"arn-1": "its job is over", "arn-2": "its job is over"}
    assert run(made) == {}


def test_a_task_that_ended_with_its_job_in_hand_is_followed_by_another() -> None:
    lost = queued(start=started(at=NOW - 900), leases=1, leased_until=NOW - 1)
    (start,) = run(decide([lost])).values()
    assert (start.number, start.vain, start.since, start.num_leases) == (2, 0, NOW, 1)


def test_after_some_that_ended_without_taking_it_a_job_is_given_up() -> None:
    first_at = NOW - 300
    start = started(at=first_at)
    for vain in range(1, MOST_STARTS):
        (start,) = run(decide([queued(start=start)], now=start.at + UNSEEN_S)).values()
        assert (start.number, start.vain, start.since) == (vain + 1, vain, first_at)
        start = start.model_copy(update={"task": f"arn-{vain}"})
    made = decide([queued(start=start)], now=start.at + UNSEEN_S)
    assert made.given_up["a"].startswith(f"{MOST_STARTS} learners ended before")
    # Queued again by its user, it has as many more.
    again = queued(start=start, queued_at=start.at + 1)
    (start,) = run(decide([again], now=start.at + UNSEEN_S)).values()
    assert (start.number, start.vain) == (MOST_STARTS + 1, 0)


def test_what_ecs_has_not_confirmed_is_asked_for_again_under_the_same_number() -> None:
    asked = started(task=None, at=NOW - 100)
    assert run(decide([queued(start=asked)])) == {"a": asked}


@pytest.mark.parametrize("task", [None, "arn-1"])
def test_a_job_waits_for_a_bounded_time(task: str | None) -> None:
    waiting = queued(start=started(task=task, at=NOW, since=NOW))
    listed = [(task, "a")] if task else []
    assert decide([waiting], *listed, now=NOW + WAIT_S - 1).given_up == {}
    assert "within 30 minutes" in decide([waiting], *listed, now=NOW + WAIT_S).given_up["a"]
    held = queued(start=waiting.start, leases=1, leased_until=NOW + 2 * WAIT_S)
    assert decide([held], *listed, now=NOW + WAIT_S).given_up == {}


def test_time_without_room_in_ecs_does_not_count_while_others_have_it() -> None:
    held = queued("a", leased_until=NOW + 9 * WAIT_S, leases=1)
    refused = queued("b", position=1, start=started(task=None))
    later = NOW + 2 * WAIT_S
    made = decide([held, refused], now=later)
    assert (run(made)["b"].since, made.given_up) == (later, {})


def test_no_more_run_than_may_and_the_rest_waits_in_order_and_is_told() -> None:
    jobs = [queued(name, position=n, learner="gpu") for n, name in enumerate("abc")]
    made = decide([*reversed(jobs), queued("d", position=9)], gpu=2)
    assert [record.job.job_id for record, _ in made.run] == ["a", "b", "d"]
    assert made.waits == {
        "c": "a learner with a GPU: 2 work for earlier jobs, the maximum of this deployment "
        "(most_gpu_learners)"
    }


def test_actors_of_all_that_run_have_room_in_lambda() -> None:
    held = queued("a", leased_until=NOW + 1, leases=1, least=60)
    large, small = queued("b", position=1, least=41), queued("c", position=2, least=1)
    made = decide([held, large, small], concurrency=100)
    assert (run(made), set(made.waits)) == ({}, {"b", "c"}), "nobody overtakes"
    assert "leave 40 of Lambda's concurrent executions" in made.waits["b"]
    assert set(run(decide([large], concurrency=40))) == {"b"}, "alone, it has what there is"


def test_of_two_tasks_of_a_job_the_newer_stays() -> None:
    job = queued(start=started(task="arn-2"))
    assert decide([job], ("arn-1", "a"), ("arn-2", "a")).stop == {
        "arn-1": "a newer task has its job"
    }
    held = queued(start=started(task="arn-2"), leased_until=NOW + 9, leases=1)
    assert decide([held], ("arn-1", "a"), ("arn-2", "a")).stop == {}, "either may have it"


def test_a_learner_that_hangs_is_stopped_and_another_started() -> None:
    start = started(at=NOW - 900)
    for silent_s, stopped in ((SILENT_S - 1, set()), (SILENT_S, {"arn-1"})):
        hung = queued(start=start, leases=1, leased_until=NOW - silent_s)
        made = decide([hung], ("arn-1", "a"))
        assert (set(made.stop), set(run(made))) == (stopped, {"a"} if stopped else set())


def test_a_kind_without_learners_is_left_alone() -> None:
    made = decide_tasks(
        [queued(learner="gpu")],
        [],
        TaskRule(most={"cpu": 1}, longest_wait_s=WAIT_S),
        NOW,
        counts=lambda _: True,
    )
    assert made == TaskDecision()
