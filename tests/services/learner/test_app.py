"""The learner as a process: how it starts, what it answers, how it refuses and how it ends."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import httpx
import pytest
import torch
import uvicorn
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from learning.networks.building import build_network
from learning.updates.steps import StepsBuilder
from nitro.local.ports import free_ports
from services.learner import app as app_module
from services.learner.app import build_worker, create_app
from services.learner.record.tracking import LearnerMetrics
from services.learner.settings import LearnerSettings
from shared.artifacts.local import LocalArtifacts
from shared.hyperparameters.ppo import STANDARD
from shared.service.cores import usable_cores
from tests.learning.trajectories import CONTINUOUS
from tests.patience import ANSWER_S
from tests.services.learner.scripted_scaler import (
    ScriptedScaler,
    deliver_all,
    job,
    serving,
)

_JOBS = count()
_PATIENCE_S = 240.0


@contextmanager
def _idle_scaler(cache_url: str) -> Iterator[ScriptedScaler]:
    with serving(job(f"app-{next(_JOBS)}"), cache_url, rounds=1) as scaler:
        scaler.taken = True
        yield scaler


@contextmanager
def running(app: ASGIApp) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def _environment(**variables: str) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("NITRO_")}
    return {**inherited, **{f"NITRO_{name}": value for name, value in variables.items()}}


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Start a learner that cannot start, in this process; return its message."""
    monkeypatch.setattr(app_module, "configure_logging", lambda _: None)  # the process's own
    monkeypatch.setattr(app_module, "second_process", lambda _: None)

    def start(**variables: str) -> str:
        for name in [name for name in os.environ if name.startswith("NITRO_")]:
            monkeypatch.delenv(name)
        for name, value in {"RUNS_DIR": str(tmp_path / "runs"), **variables}.items():
            monkeypatch.setenv(f"NITRO_{name}", value)
        assert app_module.main() == 2
        said = capsys.readouterr().err
        assert said.startswith("learner cannot start: ")
        return said

    return start


def test_health_and_metrics(cache_url: str, tmp_path: Path) -> None:
    registry = CollectorRegistry()
    with _idle_scaler(cache_url) as scaler:
        settings = LearnerSettings.model_validate(
            {
                "scaler_url": scaler.url,
                "cache_url": cache_url,
                "runs_dir": tmp_path,
                "device": "cpu",
            }
        )
        app = create_app(
            build_worker(
                settings,
                LocalArtifacts(settings.runs_dir),
                LearnerMetrics(registry),
                torch.device("cpu"),
                None,
            ),
            registry,
        )
        with running(app) as url, httpx.Client(base_url=url, timeout=ANSWER_S) as client:
            assert client.get("/healthz").json() == {"status": "ok"}
            metrics = client.get("/metrics")
            assert metrics.headers["content-type"].startswith("text/plain")
            assert "nitro_learner_busy 0.0" in metrics.text
            assert scaler.idle.wait(_PATIENCE_S)
    assert "worker" not in {thread.name for thread in threading.enumerate()}


def _children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            if int(stat.read_text("ascii").rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


def test_only_rounds_that_do_not_overlap_get_the_second_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[int, StepsBuilder] = {}
    process = object()
    monkeypatch.setattr(
        app_module,
        "build_algorithm",
        lambda made, **kw: given.update({made.spec.open_rounds: kw["steps"]}),
    )
    worker = build_worker(
        LearnerSettings(runs_dir=tmp_path, device="cpu"),
        LocalArtifacts(tmp_path),
        LearnerMetrics(CollectorRegistry()),
        torch.device("cpu"),
        process,  # type: ignore[arg-type]
    )
    for algorithm in ("ppo", "impala"):
        worker._build_algorithm(job("app-second", algorithm=algorithm, hyperparameters={}), None)
    network = build_network(CONTINUOUS, STANDARD, seed=0)
    offered = {name: build(network, CONTINUOUS, STANDARD) for name, build in given.items()}
    assert offered[1]._process is process  # type: ignore[attr-defined]
    assert offered[2]._process is None  # type: ignore[attr-defined]


def test_a_port_in_use_is_named_with_its_setting_before_any_work_is_taken(
    refused: Callable[..., str], cache_url: str
) -> None:
    with (
        _idle_scaler(cache_url) as scaler,
        socket.create_server(("127.0.0.1", 0)) as taken,
    ):
        port = str(taken.getsockname()[1])
        said = refused(LEARNER_PORT=port, SCALER_URL=scaler.url)
        assert "NITRO_LEARNER_PORT" in said
        assert port in said
        assert not scaler.idle.is_set()


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("LEARNER_PORT", "70000", "NITRO_LEARNER_PORT"),
        ("SCALER_URL", "ftp://scaler", "NITRO_SCALER_URL"),
        ("SCALER_URL", "http://[::1", "NITRO_SCALER_URL"),
        ("TOKEN_FILE", "/nowhere/token", "the token file /nowhere/token"),
        ("JOB_ID", "hopper-1", "NITRO_LEARNER_KIND"),
    ],
)
def test_a_wrong_setting_is_named_as_its_variable(
    refused: Callable[..., str], variable: str, value: str, says: str
) -> None:
    assert says in refused(**{variable: value})


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_missing_gpu_is_told_of_before_any_work_is_taken(
    refused: Callable[..., str], cache_url: str
) -> None:
    with _idle_scaler(cache_url) as scaler:
        message = refused(DEVICE="cuda", SCALER_URL=scaler.url, LEARNER_PORT=str(free_ports(1)[0]))
        assert "NITRO_DEVICE is cuda" in message
        assert "finds no GPU" in message
        assert not scaler.idle.is_set()


def test_a_runs_folder_that_cannot_be_written_is_named(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    message = refused(RUNS_DIR=str(blocked / "runs"))
    assert "NITRO_RUNS_DIR" in message
    assert str(blocked / "runs") in message


def test_a_learner_of_one_job_asks_for_that_one_and_ends_by_itself_with_it(
    cache_url: str, tmp_path: Path
) -> None:
    made = job(f"app-{next(_JOBS)}")
    with serving(made, cache_url, rounds=1) as scaler:
        variables = {
            "SCALER_URL": scaler.url,
            "CACHE_URL": cache_url,
            "RUNS_DIR": str(tmp_path),
            "LEARNER_PORT": str(free_ports(1)[0]),
            "DEVICE": "cpu",
            "TORCH_THREADS": "2",
            "LEARNER_KIND": "gpu",
            "JOB_ID": made.job_id,
        }
        command = [sys.executable, "-m", "services.learner.app"]
        done = subprocess.run(
            command, env=_environment(**variables), timeout=_PATIENCE_S, check=False
        )
    assert done.returncode == 0
    assert [finish.status for finish in scaler.finished] == ["succeeded"]
    assert {(asked.job_id, asked.kind) for asked in scaler.leased} == {(made.job_id, "gpu")}


def _wait_until_gone(pids: list[int]) -> None:
    """What cleans up ends only after those it cleans up behind."""
    give_up_at, pause = time.monotonic() + _PATIENCE_S, threading.Event()
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < give_up_at
        pause.wait(0.02)


def _helpers(threads: int, ranks: int) -> int:
    """How many processes a learner has beside its own."""
    if ranks > 1:
        return ranks  # one fewer, and what cleans up behind processes that are started anew
    return 1 if threads == 1 and usable_cores() > 1 else 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks safely")
@pytest.mark.parametrize(("threads", "ranks"), [(1, 1), (2, 1), (1, 2)])
def test_it_trains_the_job_it_leases_and_leaves_no_process_behind(
    cache_url: str, tmp_path: Path, threads: int, ranks: int
) -> None:
    """With one thread it has a second process for gradient steps; with ranks the other ones."""
    made = job(f"app-{next(_JOBS)}")
    ended = threading.Event()
    with serving(made, cache_url, rounds=1) as scaler:
        scaler.launch, scaler.on_finish = deliver_all, ended.set
        (port,) = free_ports(1)
        variables = {
            "SCALER_URL": scaler.url,
            "CACHE_URL": cache_url,
            "RUNS_DIR": str(tmp_path),
            "LEARNER_PORT": str(port),
            "DEVICE": "cpu",
            "TORCH_THREADS": str(threads),
            "LEARNER_RANKS": str(ranks),
        }
        with subprocess.Popen(
            [sys.executable, "-m", "services.learner.app"], env=_environment(**variables)
        ) as learner:
            try:
                assert ended.wait(_PATIENCE_S)
                metrics = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=ANSWER_S).text
                children = _children(learner.pid)
                assert len(children) == _helpers(threads, ranks)
                learner.send_signal(signal.SIGTERM)
                assert learner.wait(_PATIENCE_S) == 0
            finally:
                learner.kill()
    _wait_until_gone(children)
    assert scaler.finished[0].status == "succeeded", scaler.finished[0].error
    assert "nitro_learner_rounds_total 1.0" in metrics
    assert (tmp_path / made.job_id / "checkpoints" / "000001" / "state.json").exists()
