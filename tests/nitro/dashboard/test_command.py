"""`nitro dashboard` from its command line."""

import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from nitro.afar.login import Login, keep_login
from nitro.cli.main import app
from nitro.local.system import LocalSystem
from tests.nitro.synthetic_run import JOB_ID, write_run


def test_what_runs_is_opened_and_a_pipe_is_not_told_its_token(
    system: LocalSystem, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("nitro.dashboard.command._open", opened.append)
    said = CliRunner().invoke(app, ["dashboard", "--runs-dir", str(runs_dir)])
    assert said.exit_code == 0, said.output
    (url,) = opened
    link = urlsplit(url)
    assert f"{link.scheme}://{link.netloc}" == system.api_url
    assert link.fragment == f"token={system.token}"
    assert said.output.strip() == f"{system.api_url}/"


def test_where_nothing_runs_the_runs_are_served_until_an_interrupt(tmp_path: Path) -> None:
    write_run(tmp_path)
    command = [sys.executable, "-m", "nitro.cli.main", "dashboard", "--no-open"]
    with subprocess.Popen(
        [*command, "--runs-dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        link = urlsplit(process.stdout.readline().strip())
        token = link.fragment.removeprefix("token=")
        address = f"{link.scheme}://{link.netloc}"
        jobs = httpx.get(f"{address}/v1/jobs", headers={"Authorization": f"Bearer {token}"})
        page = httpx.get(f"{address}/")
        process.send_signal(2)
        _, errors = process.communicate(timeout=60)
    assert [job["job_id"] for job in jobs.json()["jobs"]] == [JOB_ID]
    assert "text/html" in page.headers["content-type"]
    assert (process.returncode, errors) == (0, "")


def test_an_api_that_wants_signatures_is_refused(tmp_path: Path) -> None:
    told = {"NITRO_SIGN_FOR": "us-east-1", "NITRO_TOKEN": "a"}
    options = ["dashboard", "--no-open", "--api-url", "https://host", "--runs-dir", str(tmp_path)]
    said = CliRunner().invoke(app, options, env=told)
    assert said.exit_code == 2
    assert "a browser cannot do" in said.output


@pytest.mark.parametrize(
    ("sign_for", "told"), [("us-east-1", "a browser cannot do"), (None, "no answer from")]
)
def test_an_api_that_was_signed_in_to_is_meant_though_it_cannot_be_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sign_for: str | None, told: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    keep_login(Login(api_url="http://127.0.0.1:1", token=SecretStr("a"), sign_for=sign_for))
    write_run(tmp_path / "runs")
    options = ["dashboard", "--no-open", "--runs-dir", str(tmp_path / "runs")]
    said = CliRunner().invoke(app, options)
    assert said.exit_code != 0
    assert told in said.output
