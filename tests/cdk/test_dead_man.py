"""The dead-man switch: what is in its package, and that somebody calls it."""

import subprocess
import sys
from pathlib import Path

from tests.cdk.template import Synthesised, text


def _package(stack: Synthesised) -> Path:
    code = stack.named("AWS::Lambda::Function", "DeadMan")["Code"]
    return stack.folder / f"asset.{Path(code['S3Key']).stem}"


def test_the_package_is_the_switch_and_nothing_else(synthesised: Synthesised) -> None:
    folder = _package(synthesised)
    files = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert files == {
        "functions/__init__.py",
        "functions/dead_man/__init__.py",
        "functions/dead_man/handler.py",
    }


def test_lambda_finds_the_handler_in_the_package(synthesised: Synthesised) -> None:
    module, _, name = synthesised.named("AWS::Lambda::Function", "DeadMan")["Handler"].rpartition(
        "."
    )
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import {module} as m; assert callable(m.{name}); print(m.__file__)",
        ],
        cwd=_package(synthesised),
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(found.stdout.strip()).is_relative_to(_package(synthesised))


def test_it_is_called_every_minute(synthesised: Synthesised) -> None:
    rule = synthesised.only("AWS::Events::Rule")
    assert (rule["ScheduleExpression"], rule["State"]) == ("rate(1 minute)", "ENABLED")
    (target,) = rule["Targets"]
    assert text(target["Arn"]).startswith("<DeadManFunction")


def test_it_needs_nothing_that_could_be_broken_with_the_rest(synthesised: Synthesised) -> None:
    switch = synthesised.named("AWS::Lambda::Function", "DeadMan")
    assert "VpcConfig" not in switch
    assert "Layers" not in switch
