"""What a stored plan launches, told by the plan alone."""

import json

from services.scaler.book.attempts import PlannedAttempt
from services.scaler.launching.orders import LaunchOrder
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from tests.services.scaler.lambda_endpoint import HOPPER
from tests.services.scaler.rounds.test_order import planned

JOB = Job(job_id="job", spec=JobSpec(), environment=HOPPER, status="running", created_at=0.0)


def test_a_plan_launches_all_its_actors_and_episodes_under_its_lease() -> None:
    written = planned(3, 0, lease_id="b")
    plan = written.plan.model_copy(update={"num_actors": 4, "num_evaluations": 2})
    order = LaunchOrder.of(written.model_copy(update={"plan": plan}), JOB)
    assert (order.samples, order.evaluations) == ((0, 1, 2, 3), (0, 1))
    assert (order.key, order.num_invocations) == (("job", 3, 0, "b"), 6)


def test_a_round_that_is_launched_again_launches_what_is_stored_as_missing() -> None:
    written = planned(3, 1).model_copy(update={"samples": (1, 3), "evaluations": ()})
    order = LaunchOrder.of(written, JOB)
    assert (order.samples, order.evaluations) == ((1, 3), ())


def test_what_runs_on_own_cores_is_not_launched() -> None:
    written = planned(3, 0)
    split = {"num_actors": 4, "num_evaluations": 2, "own": 3, "own_evaluations": 2}
    written = written.model_copy(update={"plan": written.plan.model_copy(update=split)})
    order = LaunchOrder.of(written, JOB)
    assert (order.samples, order.evaluations, order.num_invocations) == ((3,), (), 1)
    again = written.model_copy(update={"samples": (1, 3), "evaluations": ()})
    assert LaunchOrder.of(again, JOB).samples == (3,)


def test_plans_of_earlier_versions_name_no_process() -> None:
    old = planned(0, 0).model_dump(mode="json", exclude={"epoch"}) | {"order_name": "o"}
    assert PlannedAttempt.read(json.dumps(old)) == planned(0, 0)
