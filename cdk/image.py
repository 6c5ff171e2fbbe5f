"""Container images: built from the repository's root, which every image's code lies under."""

from pathlib import Path

from aws_cdk import aws_ecr_assets as assets
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_lambda as lambda_

from shared.deployment.config import NitroConfig

REPOSITORY = Path(__file__).resolve().parent.parent
_EVERY_IMAGE = ("BASE_IMAGE", "PIP_ARGS")
_ACTOR_IMAGE = ("ENVIRONMENT_REQUIREMENTS", "ENVIRONMENT_PACKAGES")


def actor_image(dockerfile: str, *, config: NitroConfig) -> lambda_.DockerImageCode:
    """Return the image of a Lambda function."""
    return lambda_.DockerImageCode.from_image_asset(
        str(REPOSITORY),
        file=dockerfile,
        exclude=_keep(dockerfile),
        build_args=_common(config) | _chosen(config, _ACTOR_IMAGE),
        platform=assets.Platform.LINUX_AMD64,
    )


def service_image(
    dockerfile: str, *, config: NitroConfig, build_args: dict[str, str] | None = None
) -> ecs.ContainerImage:
    """Return the image of an ECS service; `build_args` go beside the configured ones."""
    return ecs.ContainerImage.from_asset(
        str(REPOSITORY),
        file=dockerfile,
        exclude=_keep(dockerfile),
        build_args=_common(config) | (build_args or {}),
        platform=assets.Platform.LINUX_AMD64,
    )


def _common(config: NitroConfig) -> dict[str, str]:
    return _chosen(config, _EVERY_IMAGE)


def _chosen(config: NitroConfig, names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in config.build_args.items() if name in names}


def _keep(dockerfile: str) -> list[str]:
    """Return what follows `.dockerignore`: CDK would lose a Dockerfile below the root otherwise."""
    return [f"!{dockerfile}"]
