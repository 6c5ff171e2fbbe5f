"""Runs in real trackers, read back by the trackers' own readers; nothing leaves this machine."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from nitro.tracking.tracking import track_run
from tests.nitro.synthetic_run import job
from tests.nitro.tracking.told_run import run_of

pytestmark = [
    pytest.mark.trackers,
    pytest.mark.filterwarnings("ignore"),  # of the trackers' own libraries
]


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


def test_mlflow_has_each_round_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert found.data.tags["nitro.tags"] == "sweep=1 study"
    assert found.data.params["algorithm"] == job().spec.algorithm
    assert found.info.run_name == "baseline"
    history = client.get_metric_history(found.info.run_id, "return/evaluation")
    assert [(metric.step, metric.value) for metric in history] == [(0, 7.0), (1, 7.0), (2, 7.0)]
    assert found.data.tags["nitro.status"] == "succeeded"
    assert found.info.status == "FINISHED"


def test_wandb_writes_a_file_that_its_own_reader_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

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


def test_trackio_keeps_a_run_and_its_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read when it is imported
    assert track_run(run_of(2), "trackio", project="hopper", runs_dir=tmp_path) == 2
    assert track_run(run_of(3), "trackio", project="hopper", runs_dir=tmp_path) == 1
    import trackio

    (run,) = trackio.Api().runs("hopper")
    assert run.name == job().job_id
    kept = trackio.SQLiteStorage.get_logs("hopper", run.name)
    rounds = [(row["step"], row["return/evaluation"]) for row in kept if "env_steps" in row]
    assert rounds == [(0, 7.0), (1, 7.0), (2, 7.0)]
    assert kept[-1]["summary/rounds"] == 3
