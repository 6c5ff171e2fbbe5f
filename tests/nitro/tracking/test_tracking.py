"""What a tracker is told of a run: each round once, however often and wherever it is asked."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import JsonValue
from typer.testing import CliRunner

from nitro.cli.main import app
from nitro.client.follow import Snapshot
from nitro.errors import CommandError
from nitro.runs.reading import Run
from nitro.tracking import tracking
from nitro.tracking.tracking import told_to, track_run
from shared.contracts.rounds import RoundLine, RoundPlan, RoundRecord
from tests.nitro.synthetic_run import job, plan, result, write_run
from tests.nitro.tracking.told_run import run_of


@pytest.mark.parametrize("name", ["tensorflow", "", "../x"])
def test_an_unknown_tracker_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(CommandError, match="the tracker must be one of wandb, mlflow, trackio"):
        track_run(run_of(1), name, project="hopper", runs_dir=tmp_path)


def test_a_tracker_that_is_not_installed_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "trackio", None)
    with pytest.raises(CommandError, match=r"pip install 'nitro-rl\[trackio\]'"):
        track_run(run_of(1), "trackio", project="hopper", runs_dir=tmp_path)


class Notebook:
    """A tracker that keeps what it is told."""

    def __init__(self, last_round: int | None = None) -> None:
        self.last_round = last_round
        self.told: list[int] = []

    def log(self, round_index: int, metrics: Mapping[str, float]) -> None:
        self.told.append(round_index)

    def finish(self, summary: Mapping[str, JsonValue]) -> None:
        pass


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    kept = Notebook()
    monkeypatch.setattr(tracking, "open_tracker", lambda *_, **__: kept)
    return kept


def of_plans(*plans: RoundPlan) -> Run:
    lines = tuple(
        RoundLine(
            plan=of,
            result=None if of.stop else result(of.round),
            curvature=None,
            evaluation=None,
        )
        for of in plans
    )
    return Run(folder=Path("nowhere"), job=job(), rounds=lines, ledger=())


def test_a_round_that_takes_the_number_of_an_ending_is_told(
    tmp_path: Path, notebook: Notebook
) -> None:
    ended = of_plans(plan(0), plan(1, num_actors=0, stop="max_rounds"))
    assert track_run(ended, "wandb", project="hopper", runs_dir=tmp_path) == 1
    assert track_run(ended, "wandb", project="hopper", runs_dir=tmp_path) == 0
    assert notebook.told == [0, 1]
    resumed = of_plans(plan(0), plan(1), plan(2, num_actors=0, stop="max_rounds"))
    assert track_run(resumed, "wandb", project="hopper", runs_dir=tmp_path) == 1
    assert notebook.told == [0, 1, 1, 2]


def test_rounds_made_again_are_told_again(tmp_path: Path, notebook: Notebook) -> None:
    first = of_plans(*(plan(index, spent_usd=0.1 * index) for index in range(3)))
    track_run(first, "wandb", project="hopper", runs_dir=tmp_path)
    again = of_plans(plan(0), *(plan(index, spent_usd=0.1 * index + 0.2) for index in (1, 2)))
    assert track_run(again, "wandb", project="hopper", runs_dir=tmp_path) == 2
    assert notebook.told == [0, 1, 2, 1, 2]


def test_what_another_machine_told_is_not_told_again(tmp_path: Path, notebook: Notebook) -> None:
    notebook.last_round = 1
    assert track_run(run_of(3), "mlflow", project="hopper", runs_dir=tmp_path) == 1
    assert notebook.told == [2]


def test_each_project_is_told_of_all_rounds(tmp_path: Path, notebook: Notebook) -> None:
    for project in ("hopper", "/Shared/" + "long" * 100):
        assert track_run(run_of(2), "wandb", project=project, runs_dir=tmp_path) == 2
    assert notebook.told == [0, 1, 0, 1]


def test_a_run_of_a_folder_is_told_though_an_api_is_named(
    tmp_path: Path, notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write_run(tmp_path / "runs")
    monkeypatch.setenv("NITRO_API_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("NITRO_TOKEN", "a")
    asked = ["track", f"runs/{folder.name}", "--to", "wandb"]
    said = CliRunner().invoke(app, asked)
    assert said.exit_code == 0, said.output
    assert notebook.told
    said = CliRunner().invoke(app, [*asked, "--follow", "--api-url", "no"])
    assert "--api-url" in said.output


class Broken(Notebook):
    """A tracker whose server is away after the first round, and says so in its own way."""

    def log(self, round_index: int, metrics: Mapping[str, float]) -> None:
        if round_index:
            raise ConnectionError("no route to the tracker")
        super().log(round_index, metrics)


def test_a_tracker_that_is_away_is_an_error_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "open_tracker", lambda *_, **__: Broken())
    with pytest.raises(CommandError, match="tracker wandb: no route to the tracker"):
        track_run(run_of(3), "wandb", project="hopper", runs_dir=tmp_path)


@pytest.mark.parametrize("opens", [True, False])
def test_no_training_ends_because_a_tracker_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opens: bool
) -> None:
    broken, notes = Broken(), list[str]()

    def open_tracker(*_: object, **__: object) -> Broken:
        if not opens:
            raise ValueError("no api key")
        return broken

    monkeypatch.setattr(tracking, "open_tracker", open_tracker)
    records = tuple(
        RoundRecord(plan=plan(index), result=result(index), cost_usd=0.0) for index in range(3)
    )
    with told_to("wandb", job(), runs_dir=tmp_path, note=notes.append) as tell:
        for _ in range(2):
            tell(Snapshot(job(), records))
    why = "no route to the tracker" if opens else "no api key"
    assert len(notes) == 1
    assert f"tracker wandb: {why}; the job goes on" in notes[0]
    assert broken.told == ([0] if opens else [])
