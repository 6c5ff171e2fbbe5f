"""Accepted findings of cdk-nag, each with its reason.

All other findings fail the synthesis.
"""

from collections.abc import Iterable

from aws_cdk import Acknowledgment, CfnElement, Stack, Token, Validations
from constructs import IConstruct

from cdk.stores import RUNS_PREFIX, Stores

_VARIABLES = {
    "ECS2": "The variables are names, sizes and addresses of this stack's resources, which "
    "change with it. The one secret, the token, is an ECS secret.",
}
_INTERFACES = {
    "IAM5[Resource::*]": "Lambda manages the network interfaces with this role; they have no name "
    "before they exist, and describing them knows no resource.",
}
_PULLING = {
    "IAM5[Resource::*]": "ecr:GetAuthorizationToken knows no resource; pulling is limited to "
    "the image's repository.",
}
_REASONS = {
    "TrajectoryCache": {
        "AEC4": "What is in the cache lives for one round; losing the node costs that round, which "
        "is launched again. A replica in a second zone would double the price of the cache.",
        "AEC5": "The port is reachable from three security groups only; another number would "
        "hide nothing from them.",
        "AEC6": "Users are authenticated by IAM, each role as a user of its own (user group); AUTH "
        "is one shared password, and ElastiCache allows one of the two.",
    },
    "Stores/Runs": {
        "S1": "Only the two task roles can reach the bucket, and CloudTrail can record data events "
        "where an account wants them; a second bucket of access logs would outlive the first.",
    },
    "Stores/Token": {
        "SMG4": "Scaler and learner read the token when they start; rotating it means a new "
        "deployment of both, which docs/deploy.md describes. Nothing rotates it behind them.",
    },
    "Stores/ViewerToken": {"SMG4": "Like the token beside it: the scaler reads it when it starts."},
    "Cluster": {
        "ECS4": "Container Insights bills metrics by the hour, with or without a job. CPU and "
        "memory of all services are free metrics and on the dashboard.",
    },
    "GpuCapacity/Group": {
        "AS3": "The group has a machine for each job that wants one and follows the jobs; each "
        "start and end would be a message, and the dead-man switch watches for what stays.",
        "EC26": "The rule cannot read a launch template. The disk in ours is encrypted, which a "
        "test of the template asserts.",
    },
    "Learner/Task": _VARIABLES,
    "CpuLearner/Task": _VARIABLES,
    "Scaler/Task": _VARIABLES,
    "CpuLearner/Task/ExecutionRole": _PULLING,
    "Scaler/Task/ExecutionRole": _PULLING,
    "Scaler/Task/TaskRole": {
        "IAM5[Resource::*]": "lambda:GetAccountSettings knows no resource, ecs:ListTasks only "
        "the cluster that its condition names, and the four ssmmessages actions that port "
        "forwarding needs where there is no public endpoint know none either.",
    },
    "DeadMan/Role": {
        "IAM5[Resource::*]": "ecs:ListTasks knows no resource; its condition names the cluster.",
    },
    "Actor/Role": _INTERFACES,
    "Gradient/Role": _INTERFACES,
    "GpuCapacity/HostRole": {
        "IAM5[Action::ecs:Submit*]": "The ECS agent reports changes of tasks, containers and "
        "attachments; it can do so for this cluster only.",
        "IAM5[Resource::*]": "What the ECS agent needs before it belongs to a cluster, and "
        "ecr:GetAuthorizationToken, know no resource.",
    },
    "ApiEndpoint": {
        "APIG4": "The scaler checks the bearer token of every request but health and schema; "
        "`endpoint: iam` asks for an IAM signature as well. The endpoint is throttled and logged.",
    },
}
"""By path of the construct and number of the rule."""


def acknowledge_findings(stack: Stack, stores: Stores, families: Iterable[str]) -> None:
    """Acknowledge each accepted finding at its construct.

    `families` are those of the learners' tasks.
    """
    for path, reasons in _REASONS.items():
        construct = _find(stack, path)
        if construct is not None:
            for rule, reason in reasons.items():
                _acknowledge(construct, rule, reason)
    objects = f"<{_logical_id(stack, stores.runs)}.Arn>/{RUNS_PREFIX}/*"
    for path in ("Scaler/Task/TaskRole", "CpuLearner/Task/TaskRole"):
        construct = _find(stack, path)
        if construct is not None:
            _acknowledge(
                construct,
                f"IAM5[Resource::{objects}]",
                "The objects of all runs, which have no names yet; nothing else in the bucket.",
            )
    cluster = _find(stack, "Cluster")
    assert cluster is not None
    where = [
        f"<AWS::{name}>" if Token.is_unresolved(value) else value
        for name, value in (("Region", stack.region), ("AccountId", stack.account))
    ]
    ecs = ":".join(["arn:<AWS::Partition>:ecs", *where])
    tasks = f"{ecs}:task/<{_logical_id(stack, cluster)}>/*"
    named = "Tasks of the stack's own cluster, which ECS names when they are run; no others."
    for path in ("Scaler/Task/TaskRole", "DeadMan/Role"):
        _acknowledge_resource(stack, path, tasks, named)
    for family in families:
        _acknowledge_resource(
            stack,
            "Scaler/Task/TaskRole",
            f"{ecs}:task-definition/{family}:*",
            "Every revision of a family of the stack's own: each deployment may make another one.",
        )


def _acknowledge_resource(stack: Stack, path: str, resource: str, reason: str) -> None:
    construct = _find(stack, path)
    assert construct is not None
    _acknowledge(construct, f"IAM5[Resource::{resource}]", reason)


def _logical_id(stack: Stack, construct: IConstruct) -> str:
    resource = construct.node.default_child
    assert isinstance(resource, CfnElement)
    return str(stack.get_logical_id(resource))


def _find(stack: Stack, path: str) -> IConstruct | None:
    """Return a construct; None if the configuration omits it."""
    found: IConstruct | None = stack
    for name in path.split("/"):
        found = found.node.try_find_child(name) if found is not None else None
    return found


def _acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    Validations.of(construct).acknowledge(
        Acknowledgment(id=f"AwsSolutions::AwsSolutions-{rule}", reason=reason)
    )
