from pathlib import Path
from typing import Any

import pytest

from nitro.hints import Place
from nitro.runs.summary import (
    Summary,
    cost_text,
    duration,
    going_on,
    next_commands,
    number,
    summarise,
    summary_table,
)
from shared.contracts.billing import ServerfulCost
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, JobProgress
from shared.contracts.rounds import RoundRecord
from shared.contracts.stop_rule import NO_CAP_USD, StopRule
from tests.nitro.synthetic_run import cost, evaluation, job, plan, rendered, result

PLACE = Place()
COST = cost(
    settled_usd=0.0123,
    serverful=(
        ServerfulCost(
            learner_instance="p3.2xlarge",
            actor_instance="c5.4xlarge",
            wall_s=90.0,
            total_usd=0.0935,
        ),
    ),
)
RECORDS = (
    RoundRecord(
        plan=plan(0, num_actors=64), result=result(0, evaluation=evaluation(0, 15.0)), cost_usd=0.01
    ),
    RoundRecord(
        plan=plan(1, num_actors=9), result=result(1, evaluation=evaluation(1, 500.0)), cost_usd=0.01
    ),
    RoundRecord(plan=plan(2, num_actors=0, stop="max_rounds"), result=None, cost_usd=0.0),
)


def _last(**fields: object) -> RoundRecord:
    return RoundRecord(plan=plan(2, num_actors=0, **fields), result=None, cost_usd=0.0)


def _table(summary: Summary, **more: Any) -> str:
    return rendered(summary_table(summary, **{"error": None, "picture": None, **more}), width=200)


def test_returns_come_from_evaluations_and_the_last_one_from_the_job() -> None:
    summary = summarise(job(rounds=2), RECORDS, COST, run_dir=None)
    assert (summary.first_return, summary.final_return, summary.best_return) == (15.0, 400.0, 500.0)


def test_a_job_that_evaluates_nothing_has_no_returns() -> None:
    silent = job(rounds=1, progress=JobProgress(rounds=1, env_steps=2048))
    records = (RoundRecord(plan=plan(0), result=result(0), cost_usd=0.0),)
    summary = summarise(silent, records, COST, run_dir=None)
    assert (summary.first_return, summary.final_return, summary.best_return) == (None,) * 3


def test_the_round_that_only_stops_launches_no_actors() -> None:
    assert summarise(job(rounds=2), RECORDS, COST, run_dir=None).actors_per_round == [64, 9]


def test_episodes_that_were_dropped_or_began_anew_are_warned_about() -> None:
    broken = (
        RoundRecord(
            plan=plan(i), result=result(i, dropped_episodes=i, begun_anew=2 * i), cost_usd=0.0
        )
        for i in range(3)
    )
    summary = summarise(job(), list(broken), COST, run_dir=None)
    assert (summary.dropped_episodes, summary.begun_anew) == (3, 6)
    assert "6 episodes should have continued but started over" in _table(summary)
    assert "3 episodes were dropped and sampled again" in _table(summary)


def test_json_has_what_the_run_would_take_and_cost_elsewhere() -> None:
    dumped = summarise(job(rounds=2), RECORDS, COST, run_dir=None).model_dump(mode="json")
    assert dumped["projected"] == {"wall_s": 75.0, "cost_usd": 0.0123}
    assert dumped["serverful"] == [
        {"wall_s": 90.0, "cost_usd": 0.0935, "machines": "p3.2xlarge + c5.4xlarge"}
    ]
    assert dumped["wall_s"] == 4.0


def test_a_pause_between_a_stop_and_a_resume_is_no_wall_time() -> None:
    resumed = job(rounds=2, started_at=1000.0, finished_at=90_000.0)
    assert summarise(resumed, RECORDS, COST, run_dir=None).wall_s == 2 * 2.0


def test_the_table_names_what_a_user_wants_to_know() -> None:
    text = _table(summarise(job(rounds=2), RECORDS, COST, run_dir=None), error="boom [x]")
    for part in ("15.0", "400.0", "9 to 64", "1 min 15 s", "0.0123 USD", "0.0935 USD"):
        assert part in text
    for part in ("p3.2xlarge + c5.4xlarge", "max_rounds", "boom [x]"):
        assert part in text


def _stopped(reason: str, **stop: object) -> Job:
    spec = {"seed": 7, "stop": {"max_rounds": 9, **stop}}
    return job(status="stopped", stop_reason=reason, spec=JobSpec.model_validate(spec))


def test_the_table_says_in_words_why_a_job_stopped() -> None:
    why = "budget: 8 actors may cost $0.4524, $0.2001 are left"
    records = (*RECORDS[:2], _last(stop="budget", reason=why))
    summary = summarise(_stopped("budget"), records, COST, run_dir=None)
    assert summary.stop_explanation == why
    assert why in _table(summary)


def test_a_run_folder_is_told_of_where_it_is_or_would_be() -> None:
    def told(run_dir: Path | None, expected: Path | None) -> str:
        text = _table(summarise(job(), (), COST, run_dir=run_dir), expected=expected)
        return next(line for line in text.splitlines() if "run folder" in line)

    folder = Path("/runs/hopper-v5-3f2a")
    assert told(folder, folder).split()[-1] == str(folder)
    assert f"none yet, as training had not begun; it would be {folder}" in told(None, folder)
    assert "on the machine of the API" in told(None, None)


def test_a_plan_that_did_not_end_the_job_explains_nothing() -> None:
    failed = job(status="failed", stop_reason="error", error="boom")
    records = (*RECORDS[:2], _last(stop="budget", reason="8 actors may cost $0.4524"))
    assert summarise(failed, records, COST, run_dir=None).stop_explanation is None
    user = _stopped("user")
    assert summarise(user, RECORDS[:2], COST, run_dir=None).stop_explanation is None
    assert summarise(user, (), COST, run_dir=None).stop_explanation is None


@pytest.mark.parametrize(
    ("stopped", "options"),
    [
        (_stopped("user", budget_usd=0.05), ""),
        (_stopped("budget", budget_usd=0.05), " --budget-usd 0.1"),
        (_stopped("max_wall", max_wall_s=90), " --max-wall-s 201"),
        (_stopped("max_wall", max_wall_s=600.5), " --max-wall-s 1201"),
        (_stopped("max_wall"), ""),
        (job(status="failed", stop_reason="error"), ""),
    ],
)
def test_going_on_after_a_limit_takes_a_higher_one(stopped: Job, options: str) -> None:
    command = f"{PLACE.command('train', '--resume', stopped.job_id)}{options}"
    assert going_on(stopped, wall_s=110.3, place=PLACE) == command


def test_what_to_do_next_follows_from_the_job() -> None:
    standard = job(spec=JobSpec.model_validate({"preset": "standard", "stop": {"max_rounds": 2}}))
    fresh = ["--fresh-schedule"]  # its step size has fallen to almost nothing
    evaluated, longer, paper = (command for command, _ in next_commands(standard, PLACE))
    assert evaluated == PLACE.command("evaluate", job().job_id, "--episodes", 100)
    assert longer == PLACE.command("train", "--resume", job().job_id, "--rounds", 4, *fresh)
    assert paper.endswith("--preset paper")
    (_, _, (learns_best, _)) = next_commands(job(), PLACE)
    assert learns_best == PLACE.command("train", job().spec.env_id)
    off_policy = job(spec=JobSpec.model_validate({"algorithm": "impact", "preset": "paper"}))
    (_, _, (other, _)) = next_commands(off_policy, PLACE)
    assert other == PLACE.command("train", job().spec.env_id, "--algorithm", "impact")
    replaying = job(spec=JobSpec.model_validate({"algorithm": "sac"}))
    assert len(next_commands(replaying, PLACE)) == 2


def test_nobody_goes_on_with_a_job_that_succeeded() -> None:
    assert going_on(job(), wall_s=60.0, place=PLACE) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.2 s"), (42.4, "42 s"), (187.0, "3 min 07 s"), (7500.0, "2 h 05 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_numbers() -> None:
    assert number(None) == "–"
    assert number(3.14159) == "3.1"


def test_what_a_cap_left_out_is_told_and_without_one_nothing_is_spent() -> None:
    left_out = RECORDS[0].model_copy(
        update={"plan": plan(0).model_copy(update={"reason": "budget: evaluation left out, $0"})}
    )
    summary = summarise(job(), [left_out, *RECORDS[1:]], COST, run_dir=None)
    assert "1 evaluations were skipped for lack of budget" in _table(summary)
    assert "left out" not in _table(summarise(job(), RECORDS, COST, run_dir=None))
    assert cost_text(0.25, StopRule(budget_usd=2)) == "0.2500 of 2 USD (projected)"
    assert cost_text(0.25, StopRule(budget_usd=NO_CAP_USD)) == "would be 0.2500 USD on AWS"
