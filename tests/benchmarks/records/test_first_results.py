"""First results: what a table makes of runs, and that the page has the runs that were made."""

from pathlib import Path

import pytest
from pydantic import JsonValue

from benchmarks.environment import describe_environment
from benchmarks.first_results import first_result_spec, page, settings_of
from benchmarks.records.first_results import (
    ContestantName,
    FirstResult,
    append_result,
    comparisons,
    markdown_table,
    read_results,
)
from nitro.spec.train_spec import train_spec

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks/results/first_results.jsonl"
ENVIRONMENT = describe_environment()


def result(
    contestant: ContestantName, seed: int, *returns: float, settings: str = ""
) -> FirstResult:
    return FirstResult(
        env_id="CartPole-v1",
        contestant=contestant,
        seed=seed,
        steps=50_000,
        settings=settings,
        returns=returns,
        env_steps=51_200,
        train_s=1.0,
        environment=ENVIRONMENT,
    )


def results(contestant: ContestantName, *means: float) -> list[FirstResult]:
    return [result(contestant, seed, mean) for seed, mean in enumerate(means, start=1)]


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ((500, 500, 500), (500, 500, 500), "level"),
        ((363, 375, 481, 483, 185), (500, 500, 500, 500, 500), "worse"),
        ((-80, -81, -82), (-90, -95, -99), "better"),
        ((10, 400, 490), (480, 300, 470), "level"),
        ((500, 500), (9, 9, 9), "unknown"),
    ],
)
def test_a_verdict_is_given_where_intervals_are_apart(
    ours: tuple[float, ...], theirs: tuple[float, ...], verdict: str
) -> None:
    (found,) = comparisons([*results("nitro", *ours), *results("stable-baselines3", *theirs)])
    assert found.verdict == verdict


def test_seeds_are_means_of_episodes_and_the_newest_settings_count() -> None:
    made = [
        result("nitro", 1, 9.0, settings="before"),
        result("nitro", 2, 490.0, 500.0, settings="now"),
        result("nitro", 1, 100.0, 100.0, settings="now"),
    ]
    table = markdown_table(comparisons(made))
    assert "| `CartPole-v1` | 50,000 | **298** (100, 495) | not run | unknown |" in table


def test_runs_are_read_back_and_one_made_again_replaces_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.jsonl"
    assert read_results(path) == []
    first, again, other = result("nitro", 1, 1.0), result("nitro", 1, 2.0), result("nitro", 2, 3.0)
    for each in (first, other, again):
        append_result(path, each)
    assert read_results(path) == [again, other]


def test_what_is_measured_is_what_the_command_line_trains() -> None:
    spec = first_result_spec("CartPole-v1", steps=50_000, seed=3, assignments=["stop.budget_usd=9"])
    options: dict[str, JsonValue] = {"env_id": "CartPole-v1", "seed": 3, "stop.budget_usd": 9}
    assert spec == train_spec(options=options, total_steps=50_000)


def test_no_first_run_is_worse_than_stable_baselines3s() -> None:
    made = comparisons(read_results(RESULTS))
    assert [each.env_id for each in made if each.verdict == "worse"] == []


def test_the_jobs_that_were_measured_are_those_that_begin_today() -> None:
    for each in comparisons(read_results(RESULTS)):
        for run in each.ours:
            spec = first_result_spec(each.env_id, steps=each.steps, seed=run.seed, assignments=[])
            assert run.settings == settings_of(spec)


def test_the_page_has_the_runs_that_were_made() -> None:
    text = (ROOT / "docs/results/first_results.md").read_text(encoding="utf-8")
    assert page(text, RESULTS) == text
