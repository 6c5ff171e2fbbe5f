"""An AWS account on this machine: ministack, and what it lacks of the stack's resource types.

Run by an interpreter that has ministack, with its settings in the environment. Types it does not
know fail a deployment as they would with CloudFormation; those below are recorded and nothing
more, so they are what an emulated deployment cannot show.
"""

from collections.abc import Mapping

from ministack.app import main
from ministack.services.cloudformation.provisioners import _RESOURCE_HANDLERS

RECORDED_ONLY = (
    "AWS::ApiGatewayV2::VpcLink",
    "AWS::Budgets::Budget",
    "AWS::EC2::FlowLog",
    "AWS::EC2::SecurityGroupEgress",
    "AWS::EC2::SecurityGroupIngress",
    "AWS::ECS::CapacityProvider",
    "AWS::ECS::ClusterCapacityProviderAssociations",
)


def _create(
    logical_id: str, properties: Mapping[str, object], stack_name: str
) -> tuple[str, dict[str, object]]:
    del properties
    return f"{stack_name}-{logical_id}", {}


def _delete(physical_id: str, properties: Mapping[str, object]) -> None:
    del physical_id, properties


if __name__ == "__main__":
    for _type in RECORDED_ONLY:
        if _type in _RESOURCE_HANDLERS:
            raise SystemExit(f"{_type} is known by now: take it out of RECORDED_ONLY")
        _RESOURCE_HANDLERS[_type] = {"create": _create, "delete": _delete}
    main()
