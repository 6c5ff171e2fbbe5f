"""What a job came to, from its records alone."""

import pytest

from experiments.catalogue import load
from experiments.grid import HOPPER, CellId, Scale
from experiments.outcome import JobOutcome, job_outcome
from shared.contracts.billing import JobCost, ServerfulCost
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import StopReason
from shared.contracts.rounds import RoundRecord
from tests.experiments.made_up import MACHINE, outcome
from tests.nitro.synthetic_run import JOB_ID, evaluation, job, plan, result


def finished(algorithm: str, *, rounds: int, stop_reason: StopReason = "max_rounds") -> JobOutcome:
    """Rounds of 100, 200, ... steps and $1, $2, ..., an evaluation beside each and at the end."""
    spec = JobSpec.model_validate({"algorithm": algorithm, "stop": {"max_rounds": rounds}})
    records = [
        RoundRecord(
            plan=plan(k),
            result=result(k, steps=100 * (k + 1), evaluation=evaluation(k, 10.0 * k)),
            cost_usd=k + 1,
        )
        for k in range(rounds)
    ]
    last = plan(rounds, num_actors=0, boosting_score=None, ratio=None, stop=stop_reason)
    cost = JobCost(
        job_id=JOB_ID,
        settled_usd=20.0,
        reserved_usd=0.0,
        by_item={},
        lines=(),
        price_table="paper",
        projected_wall_s=1.0,
        assumptions=(),
    )
    return job_outcome(
        job(rounds=rounds, spec=spec, stop_reason=stop_reason),
        [*records, RoundRecord(plan=last, result=None, cost_usd=0.5)],
        cost,
        cost.lines,
        wall_s=1.0,
        machine=MACHINE,
    )


@pytest.mark.parametrize(
    ("algorithm", "placed"),
    [
        ("ppo", [(0, 0, 0.0), (1, 100, 1.0), (2, 300, 3.0), (3, 600, 6.0), (4, 1000, 20.0)]),
        # Two rounds are open at a time: the one before was not over when this one was asked for.
        ("impact", [(0, 0, 0.0), (0, 0, 0.0), (1, 100, 1.0), (2, 300, 3.0), (4, 1000, 20.0)]),
    ],
)
def test_an_evaluation_stands_where_its_policy_was_published(
    algorithm: str, placed: list[tuple[int, int, float]]
) -> None:
    outcome = finished(algorithm, rounds=4)
    found = [(e.updates, e.env_steps, e.cost_usd) for e in outcome.evaluations]
    assert found == placed
    assert [e.mean_return for e in outcome.evaluations] == [0.0, 10.0, 20.0, 30.0, 400.0]


def test_a_job_that_its_user_stopped_is_given_no_evaluation_of_its_last_policy() -> None:
    outcome = finished("ppo", rounds=4, stop_reason="user")
    assert [e.mean_return for e in outcome.evaluations] == [0.0, 10.0, 20.0, 30.0]


@pytest.mark.parametrize(
    ("name", "conditions"),
    [("ablation", ("nitro", "without boosting")), ("games", ("ppo with Nitro", "ppo"))],
)
def test_servers_are_compared_with_the_learner_that_is_billed(
    name: str, conditions: tuple[str, str]
) -> None:
    # $2 here; servers with the same learner $1, the paper's, with a dearer one, $100.
    on_servers = tuple(
        ServerfulCost(learner_instance=learner, actor_instance="c", wall_s=1.0, total_usd=usd)
        for learner, usd in (("dear", 100.0), ("ours", 1.0))
    )
    made = outcome([0, 1, 2]).model_copy(update={"serverful": on_servers})
    done = {CellId(c, HOPPER, seed): made for c in conditions for seed in range(4)}
    found = load(name).find(Scale(seeds=4, quick=False), done)
    (claim,) = (claim for claim in found.claims if "servers" in claim.ours)
    assert claim.verdict == "does not hold: the other way round"


def test_fewer_warm_environments_are_a_smaller_bill_and_nothing_else() -> None:
    items = {"learner": 3.0, "provisioned_concurrency": 4.0, "lambda_duration": 1.0}
    made = outcome([0, 1, 2], usd_per_round=4.0).model_copy(update={"by_item": items})
    assert made.total_usd == 8.0
    found = made.keeping_warm(16, instead_of=64)
    assert found.total_usd == 5.0
    assert found.by_item == {**items, "provisioned_concurrency": 1.0}
    assert [r.cost_usd for r in found.rounds] == [2.5, 2.5]
    assert [e.cost_usd for e in found.evaluations] == [0.0, 2.5, 5.0]
    assert found.final_return == made.final_return
    assert made.keeping_warm(64, instead_of=64) == made


def test_rounds_share_the_time_on_aws_as_they_took_here() -> None:
    run = outcome([0, 10, 30]).model_copy(update={"projected_wall_s": 8.0})
    assert run.return_at_seconds(4.0) == pytest.approx(10.0)
    assert run.return_at_seconds(6.0) == pytest.approx(20.0)
