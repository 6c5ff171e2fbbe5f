"""Switching a job's scaling policy over REST, from the next round on and no sooner."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scaler.rounds.record import switched
from shared.contracts.jobs import Job
from shared.contracts.problem import Problem
from shared.contracts.scaling_spec import FixedScaling, Policy
from tests.services.scaler.lambda_endpoint import HOPPER
from tests.services.scaler.running import Scaler, curvature, result
from tests.services.scaler.scaling.seen import biased_agent

SMALL = {"actors": {"min": 2, "max": 8}, "evaluation": {"every_rounds": 0}}


def switch(scaler: Scaler, job_id: str, **scaling: object) -> Job:
    response = scaler.http.post(f"/v1/jobs/{job_id}/scaling", json={"scaling": scaling})
    assert response.status_code == 202, response.text
    return Job.model_validate_json(response.content)


def test_a_count_is_pinned_from_the_next_round_on(scaler: Scaler) -> None:
    lease = scaler.begin(**SMALL)
    first = scaler.round(lease, 0, curvature=curvature(1.0, -1.0))
    changed = switch(scaler, lease.job.job_id, policy="fixed", num_actors=5)
    assert [(s.round, s.scaling.policy) for s in changed.switches] == [(1, "fixed")]
    assert changed.spec == lease.job.spec, "what was asked for at first stays on record"
    assert scaler.round(lease, 0, curvature=curvature(1.0, -1.0)).num_actors == first.num_actors
    scaler.landed(lease.job.job_id)
    second = scaler.round(lease, 1, previous=result(0), curvature=curvature(1.0, -1.0))
    assert (first.num_actors, second.num_actors) == (8, 5)
    assert second.reason == "scaling changed from nitro; fixed: 5 actors"
    scaler.landed(lease.job.job_id)
    third = scaler.round(lease, 2, previous=result(1))
    assert third.reason == "fixed: 5 actors"
    scaler.landed(lease.job.job_id)


def test_where_there_is_one_number_to_choose_no_policy_is_asked(scaler: Scaler) -> None:
    job = scaler.submit(actors={"min": 4, "max": 4})
    path = f"/v1/jobs/{job.job_id}/scaling"
    for scaling, field, words in (
        ({"policy": "hydrozoa"}, "scaling.policy", "with exactly 4 actors and keeps that range"),
        ({"policy": "fixed", "num_actors": 5}, "scaling.num_actors", "it was submitted with"),
    ):
        refused = scaler.http.post(path, json={"scaling": scaling})
        assert refused.status_code == 422
        (error,) = refused.json()["errors"]
        assert error["field"] == field
        assert words in error["message"]
    assert scaler.job(job.job_id).switches == ()


def test_saying_it_again_changes_nothing(scaler: Scaler) -> None:
    job = scaler.submit(**SMALL)
    assert switch(scaler, job.job_id, policy="nitro").switches == ()
    once = switch(scaler, job.job_id, policy="hydrozoa", every_rounds=2)
    again = switch(scaler, job.job_id, policy="hydrozoa", every_rounds=2)
    assert once == again
    assert scaler.job(job.job_id) == once
    other = switch(scaler, job.job_id, policy="random")
    assert [s.scaling.policy for s in other.switches] == ["random"]
    assert switch(scaler, job.job_id, policy="nitro").switches == (), "and back before any round"


def test_it_is_still_so_after_a_resume_and_rounds_made_again_keep_their_policy(
    scaler: Scaler,
) -> None:
    lease = scaler.begin(**SMALL, scaling={"policy": "fixed", "num_actors": 3})
    scaler.played(lease, 0)
    switch(scaler, lease.job.job_id, policy="fixed", num_actors=6)
    scaler.played(lease, 1, previous=result(0))
    scaler.finish(lease, status="failed", stop_reason="error", error="lost")
    resumed = scaler.resumed(lease.job.job_id)
    # Its only checkpoint is the one before round 0.
    counts = []
    for index in range(3):
        previous = result(index - 1) if index else None
        counts.append(scaler.played(resumed, index, previous=previous).num_actors)
    assert counts == [3, 6, 6]


def test_a_stopped_job_goes_on_by_another_policy(scaler: Scaler) -> None:
    lease = scaler.begin(**SMALL)
    scaler.played(lease, 0)
    scaler.http.post(f"/v1/jobs/{lease.job.job_id}/stop")
    assert scaler.round(lease, 1, previous=result(0)).stop == "user"
    scaler.finish(lease, status="stopped", stop_reason="user")
    assert switch(scaler, lease.job.job_id, policy="fixed", num_actors=4).switches[0].round == 1
    plan = scaler.round(scaler.resumed(lease.job.job_id), 1, previous=result(0))
    assert plan.num_actors == 4
    scaler.landed(lease.job.job_id)


def test_a_change_of_a_stopped_job_holds_for_all_rounds_that_only_ended_it(scaler: Scaler) -> None:
    overlap = {"algorithm": "impala", "rounds_in_flight": 3}
    lease = scaler.begin(**SMALL, **overlap)
    for index in range(3):
        scaler.played(lease, index)
    scaler.http.post(f"/v1/jobs/{lease.job.job_id}/stop")
    for index in range(3, 6):
        assert scaler.round(lease, index, previous=result(index - 3)).stop == "user"
    scaler.finish(lease, status="stopped", stop_reason="user")
    assert switch(scaler, lease.job.job_id, policy="fixed", num_actors=4).switches[0].round == 3


@pytest.mark.parametrize(
    ("scaling", "field"),
    [
        ({"policy": "fixed", "num_actors": 9}, "scaling.num_actors"),
        ({"policy": "schedule", "num_actors": [4, 1]}, "scaling.num_actors.1"),
        ({"policy": "hydrozoa", "every_rounds": 0}, "scaling.every_rounds"),
        ({"policy": "none"}, "scaling"),
        ({"policy": "kungfu", "speed": 1}, "scaling.speed"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    lasting_scaler: Scaler, scaling: dict[str, object], field: str
) -> None:
    job = lasting_scaler.submit(**SMALL)
    response = lasting_scaler.http.post(f"/v1/jobs/{job.job_id}/scaling", json={"scaling": scaling})
    assert response.status_code == 422
    assert field in [e.field for e in Problem.model_validate_json(response.content).errors]
    assert lasting_scaler.job(job.job_id) == job


def test_only_a_job_with_rounds_ahead_of_it_can_be_changed(scaler: Scaler) -> None:
    body = {"scaling": {"policy": "random"}}
    assert scaler.http.post("/v1/jobs/none/scaling", json=body).status_code == 404
    lease = scaler.begin(**SMALL)
    scaler.finish(lease, stop_reason="target_return")
    refused = scaler.http.post(f"/v1/jobs/{lease.job.job_id}/scaling", json=body)
    assert refused.status_code == 409
    assert "no next round" in Problem.model_validate_json(refused.content).detail


def test_a_job_that_made_all_its_rounds_may_be_changed_before_it_is_given_more(
    scaler: Scaler,
) -> None:
    lease = scaler.begin(**{**SMALL, "stop": {"max_rounds": 1}})
    scaler.round(lease, 0)
    assert scaler.round(lease, 1, previous=result(0)).stop == "max_rounds"
    scaler.finish(lease)
    body = {"scaling": {"policy": "fixed", "num_actors": 3}}
    assert scaler.http.post(f"/v1/jobs/{lease.job.job_id}/scaling", json=body).status_code == 202
    scaler.http.post(f"/v1/jobs/{lease.job.job_id}/resume", json={"max_rounds": 2})
    assert scaler.round(scaler.lease(), 1, previous=result(0)).num_actors == 3


@pytest.mark.parametrize(("at_first", "accepted"), [("nitro", 2), ("minionsrl", 1)])
def test_a_policy_brings_its_weights_and_not_too_many_of_them(
    scaler: Scaler, at_first: str, accepted: int
) -> None:
    scaling: dict[str, object] = {"policy": at_first}
    if at_first == "minionsrl":
        scaling["agent"] = _large_agent(999)
    job = scaler.submit(**SMALL, scaling=scaling)
    lease = scaler.lease()
    # As large as the published network's: three of them are more than a job's record may hold.
    statuses = []
    for index in range(4):
        response = scaler.http.post(
            f"/v1/jobs/{job.job_id}/scaling",
            json={"scaling": {"policy": "minionsrl", "agent": _large_agent(998 - index)}},
        )
        statuses.append(response.status_code)
        scaler.played(lease, index, previous=result(index - 1) if index else None)
    assert statuses == [202] * accepted + [409] * (4 - accepted)


def _large_agent(num_choices: int) -> dict[str, object]:
    agent = biased_agent(*(0.123456 + i * 1e-6 for i in range(num_choices))).model_dump()
    agent["layers"][0]["weights"] = [[0.123456] * 8] * num_choices
    return agent


COUNTS = st.integers(1, 3).map(lambda n: FixedScaling(policy="fixed", num_actors=n))


@given(changes=st.lists(st.tuples(st.integers(0, 6), COUNTS), max_size=8), first=COUNTS)
def test_each_change_holds_from_its_round_on_and_those_before_it_stay(
    changes: list[tuple[int, Policy]], first: Policy
) -> None:
    spec = {"actors": {"min": 1, "max": 4}, "scaling": first.model_dump()}
    job = Job.model_validate(
        {
            "job_id": "job",
            "spec": spec,
            "environment": HOPPER.model_dump(),
            "status": "running",
            "created_at": 0.0,
        }
    )
    expected: list[Policy] = [first] * 10
    for index, scaling in changes:
        switches = switched(job, scaling, first_round=index, now=1.0)
        job = job.model_copy(update={"switches": switches})
        expected[index:] = [scaling] * (10 - index)
    assert [job.scaling_of(k) for k in range(10)] == expected
    rounds = [s.round for s in job.switches]
    assert rounds == sorted(set(rounds))
