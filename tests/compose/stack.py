"""One running Compose project: start, look into, break, and take down again."""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

from nitro.client.client import NitroClient
from nitro.local.ports import free_ports
from tests.compose import docker
from tests.compose.images import TAG, Images
from tests.compose.wheelhouse import ROOT

SERVICES = ("redis", "emulator", "actor", "gradient", "scaler", "learner", "cpu-learner")
RUNS = "/var/lib/nitro/runs"


class Stack:
    """The project of docker-compose.yml under a name, a port and a token of its own."""

    def __init__(self, images: Images, folder: Path) -> None:
        self.project = f"nitro-test-{secrets.token_hex(3)}"
        self.token = secrets.token_hex(32)
        self.token_file = folder / "token"
        self.token_file.write_text(self.token, encoding="utf-8")
        self.token_file.chmod(0o444)
        viewer_token = folder / "viewer_token"
        viewer_token.write_text(secrets.token_hex(32), encoding="utf-8")
        viewer_token.chmod(0o444)
        emulator_token = folder / "emulator_token"
        emulator_token.write_text(secrets.token_hex(32), encoding="utf-8")
        emulator_token.chmod(0o444)
        self._base = images.base
        port = free_ports(1)[0]
        self.api_url = f"http://127.0.0.1:{port}"
        self._compose = (
            *docker.compose_command(),
            *("--file", str(ROOT / "docker-compose.yml"), "--project-name", self.project),
        )
        self._environment = {
            "NITRO_API_PORT": str(port),
            "NITRO_BASE_IMAGE": images.base,
            "NITRO_REDIS_IMAGE": images.redis,
            "NITRO_TAG": TAG,
            "NITRO_TOKEN_FILE": str(self.token_file),
            "NITRO_VIEWER_TOKEN_FILE": str(viewer_token),
            "NITRO_EMULATOR_TOKEN_FILE": str(emulator_token),
        }

    def compose(self, *arguments: str, timeout_s: float = 300.0) -> str:
        """Run one command of Compose; returns its output."""
        return docker.run(
            *self._compose, *arguments, timeout_s=timeout_s, environment=self._environment
        )

    def up(self, *, actors: int) -> None:
        """Start everything, or change the number of actors; returns when Compose does."""
        self.compose("up", "--detach", "--no-build", "--scale", f"actor={actors}")

    def down(self) -> None:
        """Remove everything, data too."""
        self.compose("down", "--volumes", "--remove-orphans")

    def containers(self, service: str) -> list[str]:
        """Return the ids of a service's containers."""
        return self.compose("ps", "--quiet", service).split()

    def execute(self, service: str, *command: str) -> str:
        """Run a command in the first container of a service."""
        return docker.run("docker", "exec", self.containers(service)[0], *command)

    def python(self, service: str, source: str) -> str:
        """Run Python in the first container of a service."""
        return self.execute(service, "/opt/nitro/bin/python", "-c", source).strip()

    def kill(self, service: str) -> None:
        """Kill a service's first process as the kernel would, so that its restart policy holds.

        `docker kill` would not do: a container that somebody ended on purpose is not restarted.
        """
        container = self.containers(service)[0]
        pid = docker.run("docker", "inspect", "--format", "{{.State.Pid}}", container).strip()
        docker.run(
            *("docker", "run", "--rm", "--pid", "host", "--user", "0", "--network", "none"),
            *("--entrypoint", "sh", self._base, "-c", f"kill -9 {pid}"),
        )

    def restarts(self, service: str) -> int:
        """Return how often Docker has started a service's containers again."""
        counts = docker.run(
            *("docker", "inspect", "--format", "{{.RestartCount}}"), *self.containers(service)
        )
        return sum(int(count) for count in counts.split())

    def copy_run(self, job_id: str, target: Path) -> None:
        """Copy a run's folder out of its volume."""
        source = f"{self.containers('learner')[0]}:{RUNS}/{job_id}"
        docker.run("docker", "cp", source, str(target / job_id))

    def logs(self) -> str:
        """Return what all services have written."""
        return self.compose("logs", "--no-color", "--timestamps")

    @contextlib.contextmanager
    def client(self) -> Iterator[NitroClient]:
        """Return a client with this project's token."""
        with NitroClient(self.api_url, self.token) as connected:
            yield connected
