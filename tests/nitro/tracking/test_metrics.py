"""What a tracker is told of a round."""

import pytest

from nitro.tracking.metrics import TrackedRun, summary, tracked_rounds
from shared.contracts.rounds import EvaluationResult, RoundLine
from tests.nitro.synthetic_run import job, plan, result


def test_rounds_that_are_over_are_told_with_the_steps_up_to_them() -> None:
    evaluation = EvaluationResult(policy_version=0, returns=(1.0, 3.0), lengths=(1, 1))
    lines = [
        RoundLine(plan=plan(0), result=result(0), curvature=None, evaluation=evaluation),
        RoundLine(plan=plan(1), result=result(1), curvature=None, evaluation=None),
        RoundLine(plan=plan(2), result=None, curvature=None, evaluation=None),
    ]
    first, second = tracked_rounds(lines)
    assert (first.index, second.index) == (0, 1)
    of_first, of_second = first.metrics, second.metrics
    assert of_first["return/evaluation"] == 2.0
    assert "return/evaluation" not in of_second
    steps = [line.result.env_steps for line in lines if line.result]
    assert (of_first["env_steps"], of_second["env_steps"]) == (steps[0], sum(steps))
    assert of_second["timing/total_s"] == pytest.approx(result(1).timing.total_s)
    ended = RoundLine(
        plan=plan(2, num_actors=0, stop="max_rounds"),
        result=None,
        curvature=None,
        evaluation=evaluation,
    )
    last = tracked_rounds([*lines[:2], ended])[-1]
    assert (last.is_ending, last.metrics["return/evaluation"]) == (True, 2.0)


def test_a_run_is_known_by_its_job_and_told_whole() -> None:
    run = TrackedRun.of(job())
    assert run.name == run.job_id == job().job_id
    assert run.config["stop.budget_usd"] == job().spec.stop.budget_usd
    assert "name" not in run.config
    assert summary(job(), 0.5)["cost_usd"] == 0.5


def test_what_an_update_measured_is_told_under_its_name() -> None:
    measured = result(0, stats={"return_std": 5.0, "noise_scale": 9.0})
    line = RoundLine(plan=plan(0), result=measured, curvature=None, evaluation=None)
    (told,) = tracked_rounds([line])
    assert told.metrics["update/return_std"] == 5.0
    assert told.metrics["update/noise_scale"] == 9.0
