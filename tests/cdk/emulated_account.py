"""What an emulated deployment stands on: a network of containers, a registry, an account."""

import json
import os
import secrets
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from cdk.containers import REPOSITORY
from nitro.local.ports import free_ports
from tests.compose import docker

EMULATOR_PYTHON = REPOSITORY / ".venv-emulator" / "bin" / "python"
_REGISTRY_CONFIG = """
version: 0.1
log: {level: info}
storage: {filesystem: {rootdirectory: %s}}
http: {addr: "%s"}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Where the emulated account is."""

    network: str
    """Docker network in which it, and nothing else, is reached."""
    address: str
    """This machine's address in that network."""
    registry: str
    """Host and port of the registry, on loopback."""
    image_functions_port: int
    """Loopback port that events of functions made of images go to."""
    environment: Mapping[str, str]
    """Environment in which an AWS SDK talks to it."""


@contextmanager
def emulated_account(folder: Path) -> Iterator[Account]:
    """Start everything; what was pushed stays in `build/registry`, so that a next time is short."""
    if not docker.succeeds("docker", "info"):
        pytest.fail("Docker does not answer: run `make deploy-emulated`")
    with _network() as (network, address), _registry(folder) as registry:
        port, image_functions_port = free_ports(2)
        endpoint = f"http://{address}:{port}"
        settings = {
            "BIND_HOST": address,
            "GATEWAY_PORT": str(port),
            "MINISTACK_HOST": address,
            "MINISTACK_ACCOUNT_ID": "123456789012",
            "REDIS_HOST": address,  # what ElastiCache's endpoint is said to be
            "LAMBDA_EXECUTOR": "local",
            "DOCKER_HOST": "unix:///nonexistent.sock",
            "AWS_ENDPOINT_URL": endpoint,
            "IMAGE_FUNCTIONS_URL": f"http://127.0.0.1:{image_functions_port}/2015-03-31/functions",
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
        }
        program = Path(__file__).with_name("emulated_aws.py")
        with running([str(EMULATOR_PYTHON), str(program)], settings, until="Running on"):
            yield Account(
                network=network,
                address=address,
                registry=registry,
                image_functions_port=image_functions_port,
                environment={
                    "AWS_ENDPOINT_URL": endpoint,
                    "AWS_ACCESS_KEY_ID": "test",
                    "AWS_SECRET_ACCESS_KEY": "test",
                    "AWS_REGION": "us-east-1",
                    "AWS_DEFAULT_REGION": "us-east-1",
                },
            )


@contextmanager
def running(command: list[str], environment: Mapping[str, str], *, until: str) -> Iterator[None]:
    """Run a server for as long, from when it has said that it is ready."""
    said: list[str] = []
    over = threading.Event()
    with subprocess.Popen(
        command,
        env=environment,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:

        def read() -> None:
            for line in server.stdout or ():
                said.append(line)
                if until in line:
                    over.set()
            over.set()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        over.wait()
        if not any(until in line for line in said):
            pytest.fail("".join(said))
        try:
            yield
        finally:
            server.terminate()
            reader.join()


@contextmanager
def _network() -> Iterator[tuple[str, str]]:
    """Make a network that leads to this machine and no further; yields name and our address."""
    name = f"nitro-deploy-{secrets.token_hex(3)}"
    docker.run("docker", "network", "create", "--internal", name)
    try:
        (described,) = json.loads(docker.run("docker", "network", "inspect", name))
        yield name, str(described["IPAM"]["Config"][0]["Gateway"])
    finally:
        docker.run("docker", "network", "rm", name)


@contextmanager
def _registry(folder: Path) -> Iterator[str]:
    if shutil.which("docker-registry") is None:
        pytest.fail("docker-registry is missing (a package of Debian): run `make deploy-emulated`")
    address = f"127.0.0.1:{free_ports(1)[0]}"
    images = REPOSITORY / "build" / "registry"
    images.mkdir(parents=True, exist_ok=True)
    config = folder / "registry.yml"
    config.write_text(_REGISTRY_CONFIG % (images, address), encoding="utf-8")
    command = ["docker-registry", "serve", str(config)]
    with running(command, {"PATH": os.environ["PATH"]}, until="listening on"):
        yield address
