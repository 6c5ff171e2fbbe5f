"""`nitro train --detach`, and jobs that are named by how their ids begin."""

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from nitro.cli.main import app
from nitro.client.client import NitroClient
from nitro.errors import EXIT_USAGE
from nitro.local.system import LocalSystem
from shared.contracts.job_spec import JobSpec


def nitro(runs_dir: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--runs-dir", str(runs_dir)])


def test_a_job_is_left_to_the_system_that_is_up_and_found_by_how_its_id_begins(
    system: LocalSystem,
    client: NitroClient,
    runs_dir: Path,
    endless_job: JobSpec,
    tmp_path: Path,
) -> None:
    train = ("train", "--api-url", system.api_url, "--detach", "--json")
    file = tmp_path / "job.json"
    file.write_text(endless_job.model_dump_json())
    left = nitro(runs_dir, *train, "--spec", str(file))
    assert left.exit_code == 0, left.output
    job = json.loads(left.stdout)
    assert client.get(job["job_id"]).status in ("queued", "running")
    assert f"nitro jobs follow {job['job_id']} --runs-dir {runs_dir}" in left.stderr
    begins = job["job_id"][:-2]
    shown = json.loads(nitro(runs_dir, "jobs", "show", begins, "--json").stdout)
    assert shown["job_id"] == job["job_id"]
    assert nitro(runs_dir, "jobs", "stop", begins).stdout.startswith(job["job_id"])
    again = json.loads(nitro(runs_dir, *train, "--spec", str(file), "--seeds", "1-2").stdout)
    assert [each["spec"]["seed"] for each in again] == [1, 2]
    several = nitro(runs_dir, "jobs", "stop", "cartpole-v1-")
    assert several.exit_code == EXIT_USAGE
    assert "'cartpole-v1-' matches several jobs" in several.stderr
    assert nitro(runs_dir, "jobs", "delete", "").exit_code != 0
    for each in again:
        assert nitro(runs_dir, "jobs", "stop", each["job_id"]).exit_code == 0


def test_a_system_that_would_end_with_the_command_is_left_nothing(tmp_path: Path) -> None:
    refused = nitro(tmp_path / "my runs", "train", "CartPole-v1", "--detach")
    assert refused.exit_code == EXIT_USAGE
    assert f"nitro up --runs-dir '{tmp_path / 'my runs'}'" in refused.stderr
    assert not (tmp_path / "my runs").exists()
