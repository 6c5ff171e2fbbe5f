"""`nitro runs` on folders alone: no service is up."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from nitro.cli.main import app
from nitro.errors import EXIT_USAGE
from nitro.runs.curves import curve
from nitro.runs.reading import read_run
from shared.artifacts.store import COST_FILE, JOB_FILE
from tests.nitro.synthetic_run import cost, write_run

ROW = {
    *(
        "label",
        "tags",
        "name",
        "folder",
        "state",
        "env_id",
        "algorithm",
        "preset",
        "seed",
        "rounds",
        "max_rounds",
        "ending_steps",
    ),
    *("env_steps", "final_return", "best_return", "cost_usd", "created_at", "finished_at"),
}
REPORT = ROW | {
    *("stop_reason", "error", "changed", "training_return", "training_episodes", "evaluations"),
    *("rounds_s", "time_s", "projected_wall_s", "cost_by_item", "contents"),
}


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    """Three runs: an old one of Hopper, one of Walker2d that was cut short, and a new one."""
    write_run(tmp_path, job_id="hopper-v5-3f2a", created_at=1000.0)
    write_run(
        *(tmp_path,),
        job_id="walker2d-v5-11aa",
        asked={"env_id": "Walker2d-v5"},
        created_at=2000.0,
        status="running",
        stop_reason=None,
        finished_at=None,
        progress={},
    )
    newest = write_run(
        *(tmp_path,),
        job_id="hopper-v5-3f9c",
        rounds=20,
        asked={"seed": 3, "steps_per_actor": 128, "hyperparameters": {"clip": 0.15}},
        created_at=3000.0,
    )
    (newest / COST_FILE).write_text(cost().model_dump_json())
    return tmp_path


def runs(runs_dir: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["runs", *arguments, "--runs-dir", str(runs_dir)])


def listed(runs_dir: Path, *arguments: str) -> list[dict[str, object]]:
    result = runs(runs_dir, "list", "--json", *arguments)
    assert result.exit_code == 0, result.output
    rows: list[dict[str, object]] = json.loads(result.stdout)
    return rows


def test_runs_are_listed_newest_first_with_stable_keys(runs_dir: Path) -> None:
    rows = listed(runs_dir)
    assert [row["name"] for row in rows] == ["hopper-v5-3f9c", "walker2d-v5-11aa", "hopper-v5-3f2a"]
    assert all(set(row) == ROW for row in rows)
    assert (rows[0]["state"], rows[0]["rounds"], rows[0]["best_return"]) == ("finished", 20, 420.0)


def test_what_a_run_that_was_cut_short_came_to_is_counted_from_its_rounds(runs_dir: Path) -> None:
    (row,) = listed(runs_dir, "--env", "walker")
    run = read_run(runs_dir / "walker2d-v5-11aa")
    evaluated = [evaluation.mean_return for _, evaluation in run.evaluations]
    assert (row["state"], row["rounds"]) == ("unfinished", 12)
    assert row["env_steps"] == sum(line.result.env_steps for line in run.rounds if line.result)
    assert row["cost_usd"] == pytest.approx(sum(line.amount_usd for line in run.ledger))
    assert (row["final_return"], row["best_return"]) == (
        evaluated[-1],
        max(filter(None, evaluated)),
    )


def test_filters_narrow_the_list(runs_dir: Path) -> None:
    assert len(listed(runs_dir, "--env", "HOPPER")) == 2
    assert [row["name"] for row in listed(runs_dir, "--limit", "1")] == ["hopper-v5-3f9c"]
    assert [row["state"] for row in listed(runs_dir, "--state", "unfinished")] == ["unfinished"]
    refused = runs(runs_dir, "list", "--state", "running")
    assert refused.exit_code == EXIT_USAGE
    assert "--state: must be one of finished, stopped, failed, unfinished" in refused.stderr


def test_names_tags_and_sub_folders_are_listed_and_filtered(runs_dir: Path) -> None:
    asked = {"name": "small net", "tags": ["sweep-1", "night"]}
    write_run(runs_dir / "sweeps" / "may", job_id="hopper-v5-77aa", asked=asked, created_at=4000.0)
    write_run(runs_dir / ".nitro", job_id="hopper-v5-0000", created_at=5000.0)
    (row, *others) = listed(runs_dir)
    assert (row["name"], row["label"]) == ("hopper-v5-77aa", "small net")
    assert (row["tags"], len(others)) == (["sweep-1", "night"], 3)
    assert listed(runs_dir, "--tag", "night", "--tag", "sweep-1") == [row]
    assert listed(runs_dir, "--tag", "night", "--tag", "day") == []
    for text in ("SMALL", "sweeps/may", "sweep-1"):
        assert listed(runs_dir, "--filter", text) == [row]
    wide = CliRunner().invoke(
        app, ["runs", "list", "--runs-dir", str(runs_dir)], env={"COLUMNS": "200"}
    )
    (line,) = [each for each in wide.stdout.splitlines() if "77aa" in each]
    assert line.startswith("sweeps/may/hopper-v5-77aa ")
    assert "small net  sweep-1 night" in line
    for named in ("hopper-v5-77", "sweeps/may/hopper-v5-77aa"):
        assert json.loads(runs(runs_dir, "show", named, "--json").stdout)["name"] == row["name"]


def test_damaged_folders_are_told_and_skipped(runs_dir: Path) -> None:
    (runs_dir / "broken").mkdir()
    (runs_dir / "broken" / JOB_FILE).write_text("{")
    path = runs_dir / "walker2d-v5-11aa" / "rounds.jsonl"
    path.write_text("{\n" + path.read_text())
    (runs_dir / "hopper-v5-3f9c" / JOB_FILE).unlink()
    result = runs(runs_dir, "list")
    assert result.exit_code == 0
    assert "hopper-v5-3f2a" in result.stdout
    assert f"skipped {runs_dir / 'hopper-v5-3f9c' / JOB_FILE}: cannot be read" in result.stderr
    assert f"skipped {runs_dir / 'broken' / JOB_FILE}" in result.stderr
    assert f"skipped {path}, line 1" in result.stderr
    assert "walker2d" not in result.stdout
    assert runs(runs_dir / "none", "list").stdout.strip() == f"no runs in {runs_dir / 'none'}"


def test_a_run_is_shown_whole(runs_dir: Path) -> None:
    report = json.loads(runs(runs_dir, "show", "hopper-v5-3f9c", "--json").stdout)
    assert set(report) == REPORT
    changed = {each["field"]: (each["value"], each["default"]) for each in report["changed"]}
    assert changed["steps_per_actor"] == (128, 256)
    assert changed["hyperparameters.clip"][0] == 0.15
    assert "hyperparameters.learning_rate" not in changed
    assert report["rounds_s"] == 2.0 * 20
    assert report["time_s"]["update_s"] == 0.5 * 20
    assert sum(report["cost_by_item"].values()) == pytest.approx(
        report["evaluations"][-1]["cost_usd"]
    )
    assert report["projected_wall_s"] == 75.0
    assert {each["name"] for each in report["contents"]} == {
        *("job.json", "rounds.jsonl", "ledger.jsonl", "cost.json"),
    }
    table = runs(runs_dir, "show", "hopper-v5-3f9c").stdout
    for part in ("steps_per_actor = 128", "mean of the last 100 episodes", "lambda duration"):
        assert part in table


def test_a_unique_beginning_names_a_run_and_an_ambiguous_one_lists_them(runs_dir: Path) -> None:
    assert json.loads(runs(runs_dir, "show", "walk", "--json").stdout)["name"] == "walker2d-v5-11aa"
    refused = runs(runs_dir, "show", "hopper")
    assert refused.exit_code == EXIT_USAGE
    assert "'hopper' matches several runs" in refused.stderr
    assert "hopper-v5-3f2a, hopper-v5-3f9c" in refused.stderr
    assert runs(runs_dir, "show", "nowhere").exit_code == EXIT_USAGE


def test_runs_are_compared_field_by_field_at_equal_steps_and_at_equal_dollars(
    runs_dir: Path,
) -> None:
    names = ("hopper-v5-3f2a", "hopper-v5-3f9c")
    result = runs(runs_dir, "compare", *names, "--json")
    assert result.exit_code == 0, result.output
    compared = json.loads(result.stdout)
    assert set(compared) == {"runs", "different", "equal_steps", "equal_usd"}
    assert [set(each) for each in compared["runs"]] == [REPORT, REPORT]
    different = {each["field"]: each["values"] for each in compared["different"]}
    assert set(different) == {
        *("seed", "steps_per_actor", "stop.max_rounds", "hyperparameters.clip"),
    }
    assert different["seed"] == [7, 3]
    curves = [curve(read_run(runs_dir / name), "evaluation") for name in names]
    steps = min(each.env_steps[-1] for each in curves)
    assert compared["equal_steps"]["at"] == steps
    assert compared["equal_steps"]["measure"] == "evaluation"
    assert compared["equal_steps"]["returns"] == [each.at_steps(steps) for each in curves]
    usd = min(each.cost_usd[-1] for each in curves)
    assert compared["equal_usd"]["returns"] == [each.at_usd(usd) for each in curves]
    table = runs(runs_dir, "compare", *names).stdout
    assert "steps_per_actor" in table
    assert "evaluation return at" in table


def test_runs_of_different_environments_are_compared_without_their_returns(runs_dir: Path) -> None:
    compared = json.loads(runs(runs_dir, "compare", "hopper-v5-3f2a", "walker", "--json").stdout)
    assert (compared["equal_steps"], compared["equal_usd"]) == (None, None)
    assert "env_id" in {each["field"] for each in compared["different"]}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["walker"], "name two runs or more"),
        (["walker", "walker2d-v5-11aa"], "which is named already"),
        (["walker", "nowhere"], "no run at 'nowhere'"),
    ],
)
def test_what_cannot_be_compared_is_said(runs_dir: Path, names: list[str], message: str) -> None:
    refused = runs(runs_dir, "compare", *names)
    assert refused.exit_code == EXIT_USAGE
    assert message in refused.stderr
