"""The jobs that documents and help show are accepted as they stand."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from nitro.cli.main import app
from nitro.cli.training.train_command import EXAMPLES
from services.scaler.jobs.admission import budget_errors
from services.scaler.money.budget import RoundPricing
from services.scaler.settings import Settings
from shared.contracts.job_spec import JobSpec
from tests.documents import DOCUMENTS, commands
from tests.nitro.local.test_system import a_plan, variables
from tests.nitro.synthetic_run import write_run

ELSEWHERE = (
    "--resume",
    "--api-url",
    "--help",
    "--seeds",
    "--environment-package",
    "--track",
    "minionsrl:",
)
"""Parts of commands that need more than this machine has, or make no single new job."""
HELP = [example.removeprefix("nitro train").strip() for example in EXAMPLES]
SHOWN = {
    shlex.join(command.words[2:]): command
    for page in DOCUMENTS
    for command in commands(page)
    if command.whole
    and command.words[:2] == ("nitro", "train")
    and not any(word.startswith(ELSEWHERE) for word in command.words)
}


def local_pricing(spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RoundPricing:
    """What a local system's scaler prices a new job by."""
    variables(a_plan(tmp_path), "scaler", monkeypatch)
    return pricing(Settings(), spec)


def deployed_pricing(spec: JobSpec) -> RoundPricing:
    """What a deployment's scaler prices a new job by."""
    token = SecretStr("any")
    return pricing(Settings(token=token, ledger_clock="wall", provisioned_concurrency=64), spec)


def pricing(settings: Settings, spec: JobSpec) -> RoundPricing:
    basis = settings.cost_basis()
    return RoundPricing(
        basis=replace(basis, provisioned=min(basis.provisioned, spec.actors.max)),
        deadline_slack_s=settings.deadline_slack_s,
        learner_allowance_s=settings.learner_allowance_s,
    )


def asked_for(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobSpec:
    write_run(tmp_path / "runs")
    (tmp_path / "job.yaml").write_text("seed: 1\n")
    monkeypatch.chdir(tmp_path)
    # A deployment may have simulators that this machine lacks.
    monkeypatch.setenv("NITRO_API_URL", "https://example.org")
    result = CliRunner().invoke(app, ["train", *arguments, "--dry-run"])
    assert result.exit_code == 0, result.output
    return JobSpec.model_validate(json.loads(result.stdout))


@pytest.mark.parametrize("arguments", SHOWN)
def test_every_job_of_the_documents_is_admitted(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = SHOWN[arguments]
    spec = asked_for([*command.words[2:]], tmp_path, monkeypatch)
    on_aws = command.marker == "needs AWS"
    prices = deployed_pricing(spec) if on_aws else local_pricing(spec, tmp_path, monkeypatch)
    assert not [*budget_errors(spec, prices)]


@pytest.mark.parametrize("arguments", [text for text in HELP if "--resume" not in text])
def test_every_job_of_the_help_is_admitted(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = asked_for(shlex.split(arguments), tmp_path, monkeypatch)
    assert not [*budget_errors(spec, local_pricing(spec, tmp_path, monkeypatch))]


def test_a_refused_budget_names_the_number_of_actors_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["train", "--scaling", "fixed:16", "--budget-usd", "0.5", "--dry-run"]
    spec = JobSpec.model_validate(json.loads(CliRunner().invoke(app, arguments).stdout))
    (error,) = budget_errors(spec, local_pricing(spec, tmp_path, monkeypatch))
    assert "one round of 16 actors" in error.message
