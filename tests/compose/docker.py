"""Running the docker command line, with everything it said in the failure."""

import os
import shutil
import subprocess
from collections.abc import Mapping


def run(
    *command: str, timeout_s: float = 120.0, environment: Mapping[str, str] | None = None
) -> str:
    """Return what a command wrote to standard output; fail with all of it when it fails."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    assert done.returncode == 0, (
        f"{' '.join(command)} ended with {done.returncode}\n{done.stdout[-6000:]}\n"
        f"{done.stderr[-6000:]}"
    )
    return done.stdout


def said(*command: str) -> str:
    """Return all that a command wrote, however it ended."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.stdout


def succeeds(*command: str, timeout_s: float = 120.0) -> bool:
    """Say whether a command ends with 0."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


def compose_command() -> tuple[str, ...]:
    """Return how Compose is called here: version 2 as a plugin, or version 1 on its own."""
    if succeeds("docker", "compose", "version"):
        return ("docker", "compose")
    assert shutil.which("docker-compose"), "Compose is missing: containers/with_docker.sh gets it"
    return ("docker-compose",)


def labelled(kind: str, project: str) -> list[str]:
    """Return the containers, volumes or networks of a Compose project, whatever state they are in.

    Args:
        kind: `container`, `volume` or `network`.
        project: The project's name.
    """
    everything = ("--all",) if kind == "container" else ()
    label = f"label=com.docker.compose.project={project}"
    return run("docker", kind, "ls", *everything, "--quiet", "--filter", label).split()
