"""Containers: images built from the repository's root, and common settings of the services.

No container runs as root or has a writable file system, and each has a health check.
"""

import re
from pathlib import Path

from aws_cdk import Duration
from aws_cdk import aws_ecr_assets as assets
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from shared.deployment.config import NitroConfig

REPOSITORY = Path(__file__).resolve().parent.parent
USER = "10001:10001"
"""The images' user; repeated here, so that an image without one cannot run as root."""
_PLATFORMS = {"x86_64": assets.Platform.LINUX_AMD64, "arm64": assets.Platform.LINUX_ARM64}
_COPY = re.compile(r"^COPY (?!--)(.+) \S+$", re.MULTILINE)
"""Sources of what is copied from the repository."""
_ACTORS_OWN = ("ENVIRONMENT_REQUIREMENTS", "ENVIRONMENT_PACKAGES")


def actor_image(
    dockerfile: str, *, config: NitroConfig, command: str | None = None
) -> lambda_.DockerImageCode:
    """Return the image of a Lambda function; a `command` replaces its own handler."""
    return lambda_.DockerImageCode.from_image_asset(
        str(REPOSITORY),
        file=dockerfile,
        exclude=_all_but_copied(dockerfile),
        build_args=_chosen(config, *_ACTORS_OWN),
        platform=_PLATFORMS[config.architecture],
        cmd=None if command is None else [command],
    )


def service_image(
    dockerfile: str,
    *,
    config: NitroConfig,
    build_args: dict[str, str] | None = None,
    on_gpu: bool = False,
    runs_actors: bool = False,
) -> ecs.ContainerImage:
    """Return the image of an ECS task; `build_args` go beside the configured ones.

    GPU machines have processors of their own. What runs actors, too, has one's own environments.
    """
    return ecs.ContainerImage.from_asset(
        str(REPOSITORY),
        file=dockerfile,
        exclude=_all_but_copied(dockerfile),
        build_args=_chosen(config, *(_ACTORS_OWN if runs_actors else ())) | (build_args or {}),
        platform=_PLATFORMS["x86_64" if on_gpu else config.architecture],
    )


def fargate_platform(config: NitroConfig) -> ecs.RuntimePlatform:
    """Return the platform of Fargate tasks."""
    kinds = {"x86_64": ecs.CpuArchitecture.X86_64, "arm64": ecs.CpuArchitecture.ARM64}
    return ecs.RuntimePlatform(
        cpu_architecture=kinds[config.architecture],
        operating_system_family=ecs.OperatingSystemFamily.LINUX,
    )


def locked_down(scope: Construct, *, shared_memory_mb: int | None = None) -> ecs.LinuxParameters:
    """Return kernel settings of a container that needs no capability and reaps its children.

    Args:
        scope: Where they belong.
        shared_memory_mb: Size of /dev/shm; None for the default.
    """
    parameters = ecs.LinuxParameters(
        scope, "Linux", init_process_enabled=True, shared_memory_size=shared_memory_mb
    )
    parameters.drop_capabilities(ecs.Capability.ALL)
    return parameters


def pulse(port: int, *, start_s: int) -> ecs.HealthCheck:
    """Return a health check that asks the process itself."""
    return ecs.HealthCheck(
        command=["CMD", "alive.sh", str(port)],
        interval=Duration.seconds(15),
        timeout=Duration.seconds(5),
        retries=4,
        start_period=Duration.seconds(start_s),
    )


def log_to(log_group: logs.ILogGroup, stream_prefix: str) -> ecs.LogDriver:
    """Return the log driver; a stalled log service must not stall training."""
    return ecs.LogDrivers.aws_logs(
        stream_prefix=stream_prefix,
        log_group=log_group,
        mode=ecs.AwsLogDriverMode.NON_BLOCKING,
    )


def _chosen(config: NitroConfig, *names: str) -> dict[str, str]:
    """Return the configured build arguments that every image has, and those of these names."""
    known = ("BASE_IMAGE", "PIP_ARGS", *names)
    return {name: value for name, value in config.build_args.items() if name in known}


def _all_but_copied(dockerfile: str) -> list[str]:
    """Return ignore rules beyond `.dockerignore`: other files must not change the image.

    Without a word CDK would lose a Dockerfile below the root.
    """
    text = (REPOSITORY / dockerfile).read_text(encoding="utf-8")
    kept = [f"!{source}" for sources in _COPY.findall(text) for source in sources.split()]
    return ["*", *kept, "**/__pycache__", "**/*.py[cod]", "**/Dockerfile", f"!{dockerfile}"]
