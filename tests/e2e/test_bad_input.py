"""Input that cannot work, through the real command line and the real API.

Whatever is wrong is named together with the fix, the exit code or the status says so, and nothing
half-done is left: no job, no folder, no process.
"""

import json
import shutil
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from nitro.cli.main import app
from nitro.client.client import NitroClient
from nitro.errors import EXIT_USAGE
from nitro.local.system import LocalSystem
from shared.contracts.problem import Problem
from tests.e2e.runs import tiny, wait_finished, wait_until
from tests.patience import ANSWER_S

MANY_KWARGS = [
    part for i in range(30) for part in ("--set", f"env_kwargs.argument{i}={chr(120) * 200}")
]


def nitro(*arguments: str, **environment: str) -> Result:
    """Run the command line with these variables and no other ones of ours."""
    ours = ("NITRO_API_URL", "NITRO_TOKEN", "NITRO_TOKEN_FILE")
    return CliRunner().invoke(app, arguments, env={**dict.fromkeys(ours), **environment})


def refused(ran: Result, *says: str) -> None:
    assert ran.exit_code == EXIT_USAGE, (ran.exit_code, ran.stdout, ran.stderr)
    for words in says:
        assert words in ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stdout == ""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["CartPol-v1"], "env_id: 'CartPol-v1' is no registered environment; did you mean"),
        (["--set", "env_kwargs.colour=1"], "env_kwargs.colour: is no keyword argument of"),
        (["--actors", "8:2000"], "actors.max: 2000 actors exceed the limit of 1000"),
        (["--budget-usd", "0.001"], "stop.budget_usd: $0.001 is below the worst case of one round"),
        (["--set", "seed=now"], "seed: Input should be a valid integer, got 'now'"),
        (["--set", f"env_kwargs.text={'x' * 5000}"], "at most 256 printable characters"),
        (MANY_KWARGS, "bytes, at most 4096 fit; shorten it by"),
        (["--resume", "nobody"], "there is no job 'nobody'"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_job_that_cannot_be_is_refused_by_the_command(
    system: LocalSystem, runs_dir: Path, options: list[str], says: str
) -> None:
    env = [] if options[0] == "--resume" or not options[0].startswith("-") else ["CartPole-v1"]
    where = ("--api-url", system.api_url, "--runs-dir", str(runs_dir))
    refused(nitro("train", *env, *options, *where, "--json"), says)
    assert jobs(system) == []


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b'{"enviroment": "CartPole-v1"}', 422, "enviroment"),
        (b'{"env_id": ', 400, None),
        (b" " * 140_000, 413, None),
    ],
)
def test_a_job_that_cannot_be_is_refused_by_the_api(
    system: LocalSystem, body: bytes, status: int, field: str | None
) -> None:
    response = api(system, "POST", "/v1/jobs", content=body)
    assert response.status_code == status, response.text
    problem = Problem.model_validate_json(response.content)
    assert [error.field for error in problem.errors] == ([field] if field else [])
    assert problem.detail
    assert jobs(system) == []


def test_a_missing_or_wrong_token_is_refused_and_never_shown(
    system: LocalSystem, runs_dir: Path, tmp_path: Path
) -> None:
    where = ("jobs", "list", "--runs-dir", str(runs_dir))
    fix = "check NITRO_TOKEN or NITRO_TOKEN_FILE"
    refused(nitro(*where, NITRO_TOKEN="not-it"), "does not accept the token", fix)
    missing = str(tmp_path / "none")
    refused(nitro(*where, NITRO_TOKEN_FILE=missing), f"cannot read the token file {missing}")
    for unsendable in ("hush\nhush", "h\u00fcsh"):
        ran = nitro(*where, NITRO_TOKEN=unsendable)
        refused(ran, "NITRO_TOKEN: a token is one word")
        assert "hush" not in ran.stderr


def test_a_runs_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for folder in (file, file / "runs", Path("/proc/nitro")):
        ran = nitro("train", "CartPole-v1", "--runs-dir", str(folder))
        refused(ran, f"--runs-dir: cannot write to {folder}", "choose a folder you may write to")
    assert file.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_damaged_run_is_named_and_its_checkpoint_can_be_given_up(
    system: LocalSystem, client: NitroClient, runs_dir: Path
) -> None:
    job_id = client.submit(tiny(stop={"max_rounds": 40})).job_id
    wait_until(client, job_id, lambda job: job.progress.rounds >= 3, system)
    client.stop(job_id)
    assert wait_finished(client, job_id).status == "stopped"
    folder = runs_dir / job_id
    newest = sorted((folder / "checkpoints").iterdir())[-1]
    for name in ("policy.safetensors", "state.safetensors", "state.json"):
        whole = (newest / name).read_bytes()
        (newest / name).write_bytes(whole[:-1])
        refused(nitro("evaluate", str(folder)), f"{newest / name} is damaged", "delete the folder")
        (newest / name).write_bytes(whole)
    record = folder / "rounds.jsonl"
    record.write_text("{}\n" + record.read_text())
    refused(nitro("plot", str(folder)), f"{record}, line 1: ")
    assert not (folder / "plots" / "run.png").exists()
    shutil.rmtree(newest)
    client.resume(job_id)
    resumed = wait_finished(client, job_id)
    assert (resumed.status, resumed.progress.rounds, resumed.error) == ("succeeded", 40, None)


def jobs(system: LocalSystem) -> list[object]:
    """Jobs the API knows that have not ended."""
    found: list[object] = [
        job
        for job in json.loads(api(system, "GET", "/v1/jobs").content)["jobs"]
        if job["finished_at"] is None
    ]
    return found


def api(
    system: LocalSystem, method: str, path: str, *, content: bytes | None = None
) -> httpx.Response:
    headers = {"Authorization": f"Bearer {system.token}", "Content-Type": "application/json"}
    url = system.api_url + path
    return httpx.request(method, url, headers=headers, content=content, timeout=ANSWER_S)
