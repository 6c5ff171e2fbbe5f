"""A job's rounds as columns, over HTTP, against the rounds in full and the bill."""

import math

from services.scaler.views.curves import COLUMNS
from shared.contracts.rounds import EvaluationResult, OwnWork
from shared.contracts.views.curves import Curves
from tests.services.scaler.running import Scaler, curvature, result

SMALL = {"actors": {"min": 2, "max": 4}, "evaluation": {"every_rounds": 2, "episodes": 3}}
EVALUATION = EvaluationResult(policy_version=0, returns=(1.0, 3.0, 8.0), lengths=(1, 1, 1))


def shown(scaler: Scaler, job_id: str, **query: int) -> Curves:
    response = scaler.http.get(f"/v1/jobs/{job_id}/curves", params=query)
    assert response.status_code == 200, response.text
    return Curves.model_validate_json(response.content)


def test_columns_say_what_the_rounds_say_and_sum_to_the_bill(scaler: Scaler) -> None:
    lease = scaler.begin(**SMALL, stop={"max_rounds": 3})
    job_id = lease.job.job_id
    assert shown(scaler, job_id).columns == dict.fromkeys(COLUMNS, ())
    own = OwnWork(rollouts=2, episodes=0, lost=0, busy_s=1.5, elapsed_s=1.0)
    scaler.played(lease, 0)
    for index in (1, 2, 3):
        scaler.played(
            lease,
            index,
            curvature=curvature(1.0, -0.5 * index),
            previous=result(
                index - 1,
                episode_returns=(10.0, 20.0) if index > 1 else (),
                evaluation=EVALUATION if index == 1 else None,
                stats={"loss": 0.5 * index},
                begun_anew=index,
                own=own if index == 2 else None,
            ),
        )
    curves = shown(scaler, job_id)
    full = scaler.rounds(job_id)
    assert [*curves.columns] == [*COLUMNS]
    assert curves.columns["round"] == (0, 1, 2)
    assert curves.columns["actors"] == tuple(r.plan.num_actors for r in full.rounds)
    assert curves.columns["ratio"] == tuple(r.plan.ratio for r in full.rounds)
    assert curves.columns["train_return"] == (None, 15.0, 15.0)
    assert curves.columns["eval_return"] == (4.0, None, None)
    assert (curves.columns["eval_min"][0], curves.columns["eval_max"][0]) == (1.0, 8.0)
    assert curves.columns["update_s"] == (0.3,) * 3
    assert curves.columns["lost"] == (0, 0, 0)
    assert curves.columns["begun_anew"] == (1, 2, 3)
    assert curves.columns["own"] == (0, 0, 0)
    assert curves.columns["own_busy_s"] == (None, 1.5, None)
    assert curves.stats == {"loss": (0.5, 1.0, 1.5)}
    assert (curves.num_rounds, curves.next_after, curves.more) == (3, 2, False)
    ending = curves.ending
    assert ending is not None
    assert (ending.stop, ending.round) == ("max_rounds", 3)
    told = sum(map(sum, curves.cost.values())) + sum(ending.cost.values())
    assert math.isclose(told, scaler.cost(job_id).settled_usd)
    scaler.finish(lease, final_evaluation=EVALUATION)
    last = shown(scaler, job_id, after=2).ending
    assert last is not None
    assert (last.eval_return, last.eval_episodes) == (4.0, 3)


def test_only_rounds_that_can_change_are_asked_for_again(scaler: Scaler) -> None:
    lease = scaler.begin(**SMALL)
    job_id = lease.job.job_id
    scaler.played(lease, 0)
    open_round = shown(scaler, job_id)
    assert (open_round.next_after, open_round.columns["env_steps"]) == (-1, (None,))
    for index in range(1, 5):
        scaler.played(lease, index, previous=result(index - 1))
    first = shown(scaler, job_id, limit=2)
    assert (first.columns["round"], first.more, first.next_after) == ((0, 1), True, 1)
    rest = shown(scaler, job_id, after=1)
    assert (rest.columns["round"], rest.more, rest.next_after) == ((2, 3, 4), False, 3)
    assert rest.num_rounds == 5
    newest = shown(scaler, job_id, after=3)
    assert newest.columns["round"] == (4,)
    path = f"/v1/jobs/{job_id}/rounds"
    full = scaler.http.get(path, params={"after": 1, "limit": 1}).json()["rounds"]
    assert [record["plan"]["round"] for record in full] == [2]
    page = scaler.http.get(path, params={"after": 1, "limit": 1, "cursor": 3}).json()
    assert [record["plan"]["round"] for record in page["rounds"]] == [3]


def test_a_learner_that_goes_back_voids_what_was_known(scaler: Scaler) -> None:
    lease = scaler.begin(**SMALL)
    job_id = lease.job.job_id
    scaler.played(lease, 0)
    scaler.played(lease, 1, previous=result(0))
    assert shown(scaler, job_id).generation == 0
    scaler.http.delete(f"/v1/leases/{lease.lease_id}")
    scaler.played(scaler.lease(), 0)
    again = shown(scaler, job_id)
    assert (again.generation, again.columns["round"]) == (1, (0,))
