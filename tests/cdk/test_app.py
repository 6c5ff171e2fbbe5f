"""The app as a whole: what it checks, what it warns of, what it must never write down."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cfnlint.api import ManualArgs, lint

from cdk.app import build_app
from cdk.containers import REPOSITORY
from shared.deployment.config import ConfigError
from tests.cdk.template import Synthesised, Variant, synthesise
from tests.own_prices import FRANKFURT

_DOCKERFILES = {
    "functions/actor/Dockerfile": {
        *("constraints.txt", "containers", "environments", "functions", "learning", "shared"),
    },
    "services/learner/Dockerfile": {
        *("constraints.txt", "containers", "environments", "functions", "learning"),
        *("pyproject.toml", "services", "shared"),
    },
    "services/scaler/Dockerfile": {"containers", "services", "shared"},
}
"""What is at the top of each image's context."""
_SECRET = re.compile(
    r"AKIA[0-9A-Z]{16}|-----BEGIN|resolve:secretsmanager|rediss?://[^/<]*@"
    r'|"Name":\s*"NITRO_TOKEN",\s*"Value"'
)


_ACCOUNT = {
    "account": "123456789012",
    "region": "eu-central-1",
    "learner_instance_types": ["g6.2xlarge"],
}


def _warnings(stack: Synthesised) -> Iterator[str]:
    for name in ("manifest.json", f"{stack.name}.metadata.json"):
        path = stack.folder / name
        if path.is_file():
            written = path.read_text(encoding="utf-8")
            yield from re.findall(r'"aws:cdk:warning",\s*"data":\s*"(.*?)"', written)


def _assets(stack: Synthesised) -> dict[str, Path]:
    """Build context of each image, by Dockerfile."""
    text = (stack.folder / f"{stack.name}.assets.json").read_text(encoding="utf-8")
    return {
        image["source"]["dockerFile"]: stack.folder / image["source"]["directory"]
        for image in json.loads(text)["dockerImages"].values()
    }


def test_cdk_nag_finds_nothing_that_is_not_acknowledged(
    synthesised: Synthesised, changed: Synthesised, without_gpu: Synthesised, variant: Variant
) -> None:
    stacks = [
        synthesised,
        changed,
        without_gpu,
        *(variant(endpoint=endpoint) for endpoint in ("iam", "none")),
    ]
    for stack in stacks:
        reports = stack.report()["pluginReports"]
        assert {r["pluginName"]: r["violations"] for r in reports}["AwsSolutions"] == []


def test_every_acknowledgement_gives_a_reason_and_covers_something(
    synthesised: Synthesised,
) -> None:
    (report,) = synthesised.report()["pluginReports"]
    for finding in report["suppressedViolations"]:
        assert len(finding["reason"]) > 60, finding["ruleName"]
        assert finding["acknowledgedAt"] != synthesised.name, "acknowledged for the whole stack"


def test_cfn_lint_finds_nothing(synthesised: Synthesised) -> None:
    template = synthesised.folder / f"{synthesised.name}.template.json"
    # W3005 is about dependencies that CDK writes twice, which does no harm.
    found = lint(template.read_text(encoding="utf-8"), config=ManualArgs(ignore_checks=["W3005"]))
    assert [str(finding) for finding in found] == []


def test_no_secret_is_written_down(synthesised: Synthesised) -> None:
    for path in synthesised.folder.glob("*.json"):
        assert not _SECRET.search(path.read_text(encoding="utf-8")), path.name


def test_nothing_runs_code_of_its_own_at_deployment(synthesised: Synthesised) -> None:
    kinds = {resource["Type"] for resource in synthesised.template["Resources"].values()}
    assert not [k for k in kinds if k.startswith("Custom::") or "CustomResource" in k]
    assert len(synthesised.of_type("AWS::Lambda::Function")) == 3


def test_an_images_context_is_what_its_dockerfile_copies(synthesised: Synthesised) -> None:
    assets = _assets(synthesised)
    assert assets.keys() == _DOCKERFILES.keys()
    for dockerfile, folder in assets.items():
        files = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
        assert dockerfile in files
        tops = {name.split("/")[0] for name in files} - {".dockerignore"}
        assert tops == _DOCKERFILES[dockerfile]
        assert not [name for name in files if name.endswith(".pyc")]
    learner = assets["services/learner/Dockerfile"]
    assert (learner / "services/learner/app.py").is_file()
    assert not (learner / "services/scaler").exists()


def test_a_changed_stylesheet_makes_one_new_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "repository"
    tops = {"constraints.txt", ".dockerignore"}.union(*_DOCKERFILES.values())
    for top in tops:
        source = REPOSITORY / top
        if source.is_dir():
            shutil.copytree(source, copy / top, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            copy.mkdir(exist_ok=True)
            shutil.copy(source, copy / top)
    monkeypatch.setattr("cdk.containers.REPOSITORY", copy)

    def images(name: str) -> set[str]:
        stack = synthesise(tmp_path / name)
        written = (stack.folder / f"{stack.name}.assets.json").read_text(encoding="utf-8")
        return set(json.loads(written)["dockerImages"])

    before = images("before")
    stylesheet = next((copy / "services/scaler/web").rglob("*.css"))
    stylesheet.write_text(stylesheet.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert len(before - images("after")) == 1


def test_nothing_is_warned_of_by_default(synthesised: Synthesised, offered: Synthesised) -> None:
    assert list(_warnings(synthesised)) == []
    assert list(_warnings(offered)) == []


def test_an_account_without_a_gpu_is_a_warning_and_a_list_without_one_is_none(
    variant: Variant, without_gpu: Synthesised
) -> None:
    (warning,) = _warnings(variant(answer={"offered_instance_types": []}))
    assert "has no learner with a GPU and refuses jobs that need one" in warning
    assert list(_warnings(without_gpu)) == []


def test_the_template_goes_to_any_account(synthesised: Synthesised) -> None:
    manifest = json.loads((synthesised.folder / "manifest.json").read_text(encoding="utf-8"))
    stack = manifest["artifacts"][synthesised.name]
    assert stack["environment"] == "aws://unknown-account/unknown-region"


def test_an_account_can_be_named_without_its_credentials(variant: Variant) -> None:
    stack = variant(**_ACCOUNT)
    manifest = json.loads((stack.folder / "manifest.json").read_text(encoding="utf-8"))
    environment = manifest["artifacts"][stack.name]["environment"]
    assert environment == "aws://123456789012/eu-central-1"
    assert "missing" not in manifest, "nothing has to be looked up"


def test_it_runs_by_itself(tmp_path: Path, synthesised: Synthesised) -> None:
    subprocess.run(
        [sys.executable, "-m", "cdk.app", str(tmp_path)],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    )
    written = json.loads((tmp_path / f"{synthesised.name}.template.json").read_text("utf-8"))
    assert written == synthesised.template


def test_prices_of_another_region_are_a_warning(
    variant: Variant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def told(stack: Synthesised) -> list[str]:
        return [w for w in _warnings(stack) if "bills and budgets" in w]

    (warning,) = told(variant(**_ACCOUNT))
    assert "prices of us-east-1, but the stack is for eu-central-1" in warning
    assert told(variant(**_ACCOUNT, prices=FRANKFURT)) == []
    # The command line tells an app without a region of its own which one it will deploy to.
    monkeypatch.setenv("CDK_DEFAULT_REGION", "eu-west-1")
    assert len(told(synthesise(tmp_path))) == 1


def test_credentials_of_another_partition_are_refused_like_a_region(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CDK_DEFAULT_REGION", "us-gov-west-1")
    with pytest.raises(ConfigError, match="region: us-gov-west-1 is in a partition of its own"):
        build_app(outdir=str(tmp_path))
