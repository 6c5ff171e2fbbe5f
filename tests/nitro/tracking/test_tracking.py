"""Runs in real trackers, read back by the trackers' own readers; nothing leaves this machine."""

import socket
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pydantic import JsonValue
from typer.testing import CliRunner

from nitro.cli.main import app
from nitro.errors import CommandError
from nitro.runs.reading import Run
from nitro.tracking import tracking
from nitro.tracking.tracking import track_run
from shared.contracts.jobs import Job, JobProgress
from shared.contracts.rounds import EvaluationResult, RoundLine, RoundPlan
from tests.nitro.synthetic_run import job, plan, result, write_run


def run_of(rounds: int) -> Run:
    done: Job = job(progress=JobProgress(rounds=rounds))
    named = done.spec.model_copy(update={"name": "baseline", "tags": ("sweep-1",)})
    evaluation = EvaluationResult(policy_version=0, returns=(7.0,), lengths=(1,))
    lines = tuple(
        RoundLine(plan=plan(index), result=result(index), curvature=None, evaluation=evaluation)
        for index in range(rounds)
    )
    shown = done.model_copy(update={"spec": named})
    return Run(folder=Path("nowhere"), job=shown, rounds=lines, ledger=())


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let nobody connect to anything but this machine."""
    real = socket.socket.connect

    def connect(self: socket.socket, address: object) -> None:
        local = not isinstance(address, tuple) or address[0] in ("127.0.0.1", "::1", "localhost")
        assert local, f"a connection to {address}"
        real(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.chdir(tmp_path)


@pytest.mark.filterwarnings("ignore")  # of the trackers' own libraries
def test_mlflow_has_each_round_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/tracked.db")
    assert track_run(run_of(2), "mlflow", project="hopper", runs_dir=tmp_path) == 2
    assert track_run(run_of(3), "mlflow", project="hopper", runs_dir=tmp_path) == 1
    assert track_run(run_of(3), "mlflow", project="hopper", runs_dir=tmp_path) == 0
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path}/tracked.db")
    experiment = client.get_experiment_by_name("hopper")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.data.tags["nitro.job"] == job().job_id
    assert found.data.params["algorithm"] == job().spec.algorithm
    assert found.info.run_name == "baseline"
    history = client.get_metric_history(found.info.run_id, "return/evaluation")
    assert [(metric.step, metric.value) for metric in history] == [(0, 7.0), (1, 7.0), (2, 7.0)]
    assert found.data.tags["nitro.status"] == "succeeded"
    assert found.info.status == "FINISHED"


@pytest.mark.filterwarnings("ignore")  # of the trackers' own libraries
def test_wandb_writes_a_file_that_its_own_reader_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")
    for name, value in {"MODE": "offline", "DIR": str(tmp_path), "SILENT": "true"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    assert track_run(run_of(2), "wandb", project="hopper", runs_dir=tmp_path) == 2
    wandb.teardown()  # ends the process that writes the file
    from wandb.proto import wandb_internal_pb2

    (path,) = tmp_path.rglob("offline-run-*/*.wandb")
    seen: list[dict[str, str]] = []
    run_ids = set()
    for data in written_records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            seen.append({"/".join(i.nested_key) or i.key: i.value_json for i in items})
        elif record.WhichOneof("record_type") == "run":
            run_ids.add(record.run.run_id)
    assert run_ids == {job().job_id}, [*map(len, written_records(path.read_bytes()))]
    assert [row["round"] for row in seen] == ["0", "1"]
    assert float(seen[1]["return/evaluation"]) == 7.0


def written_records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a W&B file: LevelDB's log format behind a header of seven bytes."""
    assert data[:4] == b":W&B"
    at, whole = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part of one
            yield whole
            whole = b""


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
    folder = write_run(tmp_path / "runs")
    monkeypatch.setenv("NITRO_API_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("NITRO_TOKEN", "a")
    asked = ["track", f"runs/{folder.name}", "--to", "wandb"]
    said = CliRunner().invoke(app, asked)
    assert said.exit_code == 0, said.output
    assert notebook.told
    said = CliRunner().invoke(app, [*asked, "--follow", "--api-url", "no"])
    assert "--api-url" in said.output
