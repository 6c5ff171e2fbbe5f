"""Jobs as tables, as they come out on a terminal."""

from datetime import datetime

import pytest

from nitro.cli.job_view import job_table, jobs_table
from shared.contracts.jobs import JobProgress, Wait
from shared.contracts.stop_rule import MAX_ROUNDS, StopRule
from shared.contracts.views.jobs import JobSummary
from tests.nitro.synthetic_run import cost, job, rendered


def test_what_is_reserved_stands_apart_from_what_the_items_add_up_to() -> None:
    running = job(status="running", stop_reason=None, finished_at=None, spent_usd=0.0917)
    text = rendered(job_table(running, cost(reserved_usd=0.4524)), width=100)
    assert "0.0917 of 5 USD (projected) (0.4524 more reserved for the round in flight)" in text
    assert "test prices" in text


def test_what_a_job_waits_for_is_shown() -> None:
    wait = Wait(reason="actors of before", until=1.75e9)
    text = rendered(job_table(job(waits_for=wait), cost()), width=100)
    assert f"actors of before (at {datetime.fromtimestamp(1.75e9):%H:%M:%S} at the latest)" in text


def test_no_learner_is_named_before_the_environment_decides() -> None:
    known = job()
    spec = known.spec.model_copy(update={"learner": "auto"})
    known = known.model_copy(update={"spec": spec, "learner": "cpu"})
    unknown = known.model_copy(update={"environment": None})
    assert "cpu (auto: " in rendered(job_table(known, cost()), width=120)
    text = rendered(job_table(unknown, cost()), width=120)
    assert "auto: decided when" in text
    assert "cpu" not in text


def test_nothing_is_said_of_reservations_where_there_are_none() -> None:
    text = rendered(job_table(job(), cost()), width=100)
    assert "0.0917 of 5 USD (projected)" in text
    assert "reserved" not in text


def _listed(job_id: str, env_id: str, **fields: object) -> JobSummary:
    shown = job(rounds=488, job_id=job_id, **fields)
    spec = shown.spec.model_copy(update={"env_id": env_id})
    return JobSummary.of(shown.model_copy(update={"spec": spec}))


@pytest.mark.parametrize("env_id", ["Hopper-v5", "ALE/Breakout-v5", "Example/PointMass-v0"])
def test_a_list_of_jobs_has_one_line_each_at_80_columns(env_id: str) -> None:
    name = env_id.lower().replace("/", "-")
    progress = JobProgress(rounds=488, last_return=-1234.5)
    first = _listed(f"{name}-3f2a1c2b", env_id, progress=progress, spent_usd=12.3456)
    second = _listed(f"{name}-00000000", env_id, status="stopping", created_at=1.75e9)
    table = jobs_table([first, second], width=80)
    heading, *lines = rendered(table, width=80).splitlines()
    assert heading.split()[:5] == ["job", "status", "round", "return", "USD"]
    assert [line.split()[:5] for line in lines] == [
        [first.job_id, "succeeded", "488/488", "-1234.5", "12.3456"],
        [second.job_id, "stopping", "488/488", "400.0", "0.0400"],
    ]


def test_a_job_that_its_steps_end_is_listed_with_its_steps() -> None:
    progress = JobProgress(rounds=6, env_steps=4224)
    shown = job(progress=progress)
    stop = StopRule(max_rounds=MAX_ROUNDS, max_env_steps=10**6)
    shown = shown.model_copy(update={"spec": shown.spec.model_copy(update={"stop": stop})})
    table = jobs_table([JobSummary.of(shown)], width=120)
    assert "4,224/1,000,000 steps" in rendered(table, width=120)
    text = rendered(job_table(shown, cost()), width=100)
    assert ["round", "6"] in [line.split() for line in text.splitlines()]
    assert "4,224 of 1,000,000" in text


def test_a_wide_terminal_shows_the_environment_too() -> None:
    shown = _listed("example-pointmass-v0-3f2a1c2b", "Example/PointMass-v0", created_at=1.75e9)
    heading, row = rendered(jobs_table([shown], width=120), width=120).splitlines()
    assert heading.split()[-2:] == ["date", "env_id"]
    assert row.split()[-1] == "Example/PointMass-v0"
