#!/usr/bin/env python3
"""The docker command as the CDK knows it, with a registry on this machine in ECR's place.

The CDK logs in, builds, tags and pushes by the program that `CDK_DOCKER` names. Everything goes to
docker as it comes, but for this: builds use the machine's network, where the packages are; nobody
logs in; what is pushed to ECR goes to `LOCAL_REGISTRY`, and the emulated ECR is told the manifest
of what arrived there.
"""

import os
import subprocess
import sys
import urllib.request
from collections.abc import Sequence

import boto3

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


def main(arguments: Sequence[str]) -> int:
    """Do what docker is asked for; return the exit code."""
    match arguments:
        case ["login", *_]:
            return 0
        case ["build", *options]:
            return _docker("build", "--network", "host", *options)
        case ["push", image]:
            return _push(image)
        case _:
            return _docker(*arguments)


def _push(image: str) -> int:
    registry = os.environ["LOCAL_REGISTRY"]
    repository, _, tag = image.partition("/")[2].partition(":")
    here = f"{registry}/{repository}:{tag}"
    code = _docker("tag", image, here) or _docker("push", "--quiet", here)
    if code == 0:
        _docker("rmi", here)
        request = urllib.request.Request(  # noqa: S310
            f"http://{registry}/v2/{repository}/manifests/{tag}", headers={"Accept": _MANIFEST}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            manifest = answer.read().decode()
        boto3.client("ecr").put_image(
            repositoryName=repository,
            imageTag=tag,
            imageManifest=manifest,
            imageManifestMediaType=_MANIFEST,
        )
    return code


def _docker(*arguments: str) -> int:
    return subprocess.run(["docker", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
