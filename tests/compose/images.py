"""The images under test, built from this tree, and what is asked of them."""

import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.compose import docker, wheelhouse

TAG = "test"
DOCKERFILES = {
    "actor": "functions/actor/Dockerfile",
    "scaler": "services/scaler/Dockerfile",
    "emulator": "services/emulator/Dockerfile",
    "learner": "services/learner/Dockerfile",
}
PYTHON_BASE = "python:3.11.14-slim-bookworm"
REDIS = "redis:7.0-alpine"
DEBIAN_BASE = "nitro-base:bookworm"
"""Made here from Debian packages where no registry can be reached; holds Redis, too."""


@dataclass(frozen=True, slots=True)
class Images:
    """What was built, and on what."""

    base: str
    redis: str

    @staticmethod
    def name(deployable: str) -> str:
        """Return the image of a deployable."""
        return f"nitro-{deployable}:{TAG}"

    def size_mb(self, image: str) -> float:
        """Return the size of an image with everything below it."""
        size: int = inspect(image)["Size"]
        return size / 1e6


def inspect(thing: str) -> dict[str, Any]:
    """Return what Docker knows of a container or an image."""
    (described,) = json.loads(docker.run("docker", "inspect", thing))
    return dict(described)


def build(packages: Path) -> Images:
    """Build all images from a folder of packages; Docker's own cache makes a second time short."""
    assert platform.system() == "Linux", "packages are fetched by this machine, which must be Linux"
    base, redis = foundations()
    with wheelhouse.served(packages) as url:
        for deployable, dockerfile in DOCKERFILES.items():
            arguments = {"BASE_IMAGE": base, "PIP_ARGS": f"--no-index --find-links {url}"}
            docker.run(
                *("docker", "build", "--network", "host", "--tag", Images.name(deployable)),
                *(f"--build-arg={name}={value}" for name, value in arguments.items()),
                *("--file", str(wheelhouse.ROOT / dockerfile), str(wheelhouse.ROOT)),
                timeout_s=900,
            )
    return Images(base=base, redis=redis)


def foundations() -> tuple[str, str]:
    """Return base image and Redis image: the usual ones, or one made here where none is reached."""
    if all(
        docker.succeeds("docker", "pull", image, timeout_s=300) for image in (PYTHON_BASE, REDIS)
    ):
        return PYTHON_BASE, REDIS
    script = wheelhouse.ROOT / "containers" / "base_image.sh"
    docker.run(str(script), DEBIAN_BASE, timeout_s=600)
    return DEBIAN_BASE, DEBIAN_BASE
