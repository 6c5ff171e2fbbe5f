"""An AWS account on this machine: ministack, and what it lacks of the stack.

Run by an interpreter that has ministack, with its settings in the environment. Types it does not
know fail a deployment as they would with CloudFormation; those below are recorded and nothing
more, so they are what an emulated deployment cannot show. Besides:

- Its registry answers an empty list where ECR answers that it has no such image, and the CDK would
  take that for a yes and push nothing.
- Below the first level of a task definition it spells names as CloudFormation does, and the SDK
  sees none of it.
- It runs container images only if they bring AWS's runtime interface emulator, which ours does
  without. Their events go below `IMAGE_FUNCTIONS_URL` instead, by its own way of forwarding: to
  the function of Nitro's emulator that has the same command.
"""

import os
from collections.abc import Mapping
from typing import Any

from ministack.app import main
from ministack.core.responses import error_response_json
from ministack.services import ecr, lambda_svc
from ministack.services.cloudformation import provisioners

RECORDED_ONLY = (
    "AWS::ApiGatewayV2::VpcLink",
    "AWS::Budgets::Budget",
    "AWS::EC2::FlowLog",
    "AWS::EC2::SecurityGroupEgress",
    "AWS::EC2::SecurityGroupIngress",
    "AWS::ECS::CapacityProvider",
    "AWS::ECS::ClusterCapacityProviderAssociations",
)

_describe_images = ecr._describe_images


def _create(
    logical_id: str, properties: Mapping[str, object], stack_name: str
) -> tuple[str, dict[str, object]]:
    del properties
    return f"{stack_name}-{logical_id}", {}


def _delete(physical_id: str, properties: Mapping[str, object]) -> None:
    del physical_id, properties


def _describe_known_images(request: dict[str, list[dict[str, str]]]) -> object:
    name = request["repositoryName"]
    for image in request.get("imageIds", []):
        if ecr._find_image(name, image) is None:
            return error_response_json("ImageNotFoundException", f"no image {image}", 400)
    return _describe_images(request)


def _forwarded_to(function: Mapping[str, Any]) -> str | None:
    """Return where a function's events go; None lets ministack run it."""
    if function.get("PackageType") != "Image":
        return None
    of_gradients = "ImageConfigResponse" in function  # the actor's command is the image's own
    name = "nitro-gradient" if of_gradients else "nitro-actor"
    return f"{os.environ['IMAGE_FUNCTIONS_URL']}/{name}/invocations"


if __name__ == "__main__":
    for _type in RECORDED_ONLY:
        if _type in provisioners._RESOURCE_HANDLERS:
            raise SystemExit(f"{_type} is known by now: take it out of RECORDED_ONLY")
        provisioners._RESOURCE_HANDLERS[_type] = {"create": _create, "delete": _delete}
    provisioners._normalize_container_defs = provisioners._pascal_to_camel
    ecr._describe_images = _describe_known_images
    lambda_svc._proxy_url_for = _forwarded_to
    main()
