"""Signing in: what is kept, for whom, and where the token goes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from nitro.afar.login import login_path, read_login
from nitro.cli.main import app
from nitro.client.client import NitroClient
from nitro.errors import CommandError
from nitro.settings import api_token, read_settings
from shared.contracts.jobs import Job
from shared.contracts.views.files import LogLine, LogPage
from tests.services.scaler.running import TOKEN, Scaler


def nitro(*arguments: str, said: str = "") -> Result:
    return CliRunner().invoke(app, arguments, input=said)


def test_a_login_opens_later_commands_and_is_nobody_elses(
    afar: Scaler, left: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = str(afar.http.base_url).rstrip("/")
    wrong = nitro("login", url, said="wrong\n")
    assert wrong.exit_code == 2
    assert read_login() is None
    done = nitro("login", url, said=f"{TOKEN}\n")
    assert done.exit_code == 0, done.output
    assert "as operator" in done.output
    assert TOKEN not in done.output
    assert login_path().stat().st_mode & 0o777 == 0o600
    listed = nitro("jobs", "list", "--json")
    assert [job["job_id"] for job in json.loads(listed.stdout)["jobs"]] == [left.job_id]
    pulled = nitro("jobs", "pull", left.job_id)
    assert (tmp_path / "runs" / left.job_id / "job.json").exists(), pulled.output
    for what in ("rounds", "events"):
        shown = nitro("jobs", what, left.job_id)
        assert shown.exit_code == 0, shown.output
    told = json.loads(nitro("jobs", "events", left.job_id, "--json").stdout)
    assert [event["kind"] for event in told["events"]][0] == "submitted"
    assert "signed out" in nitro("logout").output
    assert nitro("jobs", "events", left.job_id).exit_code == 2


def test_the_token_is_offered_to_no_other_address(afar: Scaler, tmp_path: Path) -> None:
    url = str(afar.http.base_url).rstrip("/")
    nitro("login", url, said=f"{TOKEN}\n")
    assert api_token(url, read_settings(), tmp_path) == TOKEN
    with pytest.raises(CommandError, match="no token for"):
        api_token("https://nitro.example.com", read_settings(), tmp_path)


def test_an_address_without_encryption_is_warned_of() -> None:
    said = nitro("login", "http://nobody.invalid", said="a-token\n")
    assert "is not encrypted" in said.stderr
    assert said.exit_code == 1


def test_a_login_that_others_can_read_or_that_is_damaged_is_not_used(afar: Scaler) -> None:
    nitro("login", str(afar.http.base_url), said=f"{TOKEN}\n")
    path = login_path()
    path.chmod(0o644)
    with pytest.raises(CommandError, match="open to others"):
        read_login()
    path.write_text(f'{{"token": "{TOKEN}"}}')
    path.chmod(0o600)
    with pytest.raises(CommandError, match="is damaged") as caught:
        read_login()
    assert TOKEN not in str(caught.value)


def test_a_log_line_commands_no_terminal(
    afar: Scaler, left: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = LogLine(source="learner", text="\x1b]0;title\x07 and \x9b2J")
    page = LogPage(job_id="a", sources=("learner",), lines=(line,), truncated=False)
    monkeypatch.setattr(NitroClient, "logs", lambda *_, **__: page)
    nitro("login", str(afar.http.base_url), said=f"{TOKEN}\n")
    said = nitro("jobs", "logs", left.job_id)
    assert said.exit_code == 0, said.output
    assert said.stdout.strip().isprintable()
    assert "title" in said.stdout
