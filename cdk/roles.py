"""Roles that begin with nothing, and the one way to let a role do something."""

from aws_cdk import aws_iam as iam
from constructs import Construct


def lambda_role(scope: Construct, id: str) -> iam.Role:
    """Return a function's role; CDK's own would bring managed policies for all of CloudWatch."""
    return iam.Role(scope, id, assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))


def allow(
    who: iam.IGrantable,
    resources: list[str],
    action: str,
    *,
    prefix: str | None = None,
    cluster: str | None = None,
) -> None:
    """Let a principal do one thing to some resources.

    Args:
        who: The principal.
        resources: What it may do it to.
        action: The one thing.
        prefix: For `s3:ListBucket`: below it only.
        cluster: For lists of ECS: of that cluster only.
    """
    conditions: dict[str, dict[str, object]] = {}
    if prefix is not None:
        conditions["StringLike"] = {"s3:prefix": [f"{prefix}/*"]}
    if cluster is not None:
        conditions["ArnEquals"] = {"ecs:cluster": cluster}
    iam.Grant.add_to_principal(
        grantee=who, actions=[action], resource_arns=resources, conditions=conditions or None
    )
