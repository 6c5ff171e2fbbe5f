"""Where the time of actors went, over HTTP."""

from shared.contracts.views.actors import ActorLanes
from tests.services.scaler.lambda_endpoint import Reply, Task, function_error, healthy
from tests.services.scaler.running import Scaler, result

SPEC = {"actors": {"min": 3, "max": 3}, "evaluation": {"every_rounds": 2, "episodes": 1}}


def shown(scaler: Scaler, job_id: str, **query: int) -> ActorLanes:
    response = scaler.http.get(f"/v1/jobs/{job_id}/actors", params=query)
    assert response.status_code == 200, response.text
    return ActorLanes.model_validate_json(response.content)


def test_every_actor_of_a_round_has_a_lane(scaler: Scaler) -> None:
    def behave(task: Task, nth: int) -> Reply:
        return function_error("gone") if task["actor_index"] == 2 else healthy(task, nth)

    lease = scaler.begin(**SPEC)
    job_id = lease.job.job_id
    assert shown(scaler, job_id) == ActorLanes(job_id=job_id, round=0)
    scaler.lambdas.rollouts_behave(behave)
    scaler.played(lease, 0)
    lanes = shown(scaler, job_id)
    assert (lanes.round, lanes.rounds_kept, lanes.total) == (0, (0, 0), 4)
    assert [(lane.mode, lane.index, lane.state) for lane in lanes.actors] == [
        ("sample", 0, "stored"),
        ("sample", 1, "stored"),
        ("sample", 2, "failed"),
        ("evaluate", 0, "stored"),
    ]
    done, lost = lanes.actors[0], lanes.actors[2]
    assert (lost.tries, lost.start_s) == (2, None)
    assert "gone" in lost.reason
    assert done.sent_s is not None
    assert done.ended_s is not None
    assert done.start_s is not None
    assert 0 <= done.sent_s <= done.ended_s
    assert done.steps == 256


def test_actors_under_way_are_shown_and_earlier_rounds_stay(scaler: Scaler) -> None:
    lease = scaler.begin(**SPEC)
    job_id = lease.job.job_id
    scaler.played(lease, 0)
    gate = scaler.lambdas.hold_rollouts()
    scaler.round(lease, 1, previous=result(0))
    scaler.lambdas.wait_events("sample", 6)
    lanes = shown(scaler, job_id)
    assert (lanes.round, lanes.rounds_kept) == (1, (0, 1))
    assert {lane.state for lane in lanes.actors} == {"running"}
    assert {lane.state for lane in shown(scaler, job_id, round=0).actors} == {"stored"}
    assert shown(scaler, job_id, round=7).actors == ()
    gate.set()
    scaler.landed(job_id)
