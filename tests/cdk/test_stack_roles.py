"""What each role may do, to the letter."""

import json
import re
from typing import Any

import pytest

from tests.cdk.template import Synthesised, Variant, text

Grants = set[tuple[str, str]]

_CACHE = "arn:<AWS::Partition>:elasticache:<AWS::Region>:<AWS::AccountId>"
_ECS = "arn:<AWS::Partition>:ecs:<AWS::Region>:<AWS::AccountId>"
_REPOSITORY = (
    "arn:<AWS::Partition>:ecr:<AWS::Region>:<AWS::AccountId>:repository/"
    "cdk-hnb659fds-container-assets-${AWS::AccountId}-${AWS::Region}"
)


def _connect(role: str) -> Grants:
    return {
        ("elasticache:Connect", f"{_CACHE}:replicationgroup:nitro"),
        ("elasticache:Connect", f"{_CACHE}:user:nitro-{role}"),
    }


def _each(actions: str, *resources: str) -> Grants:
    return {(action, resource) for action in actions.split() for resource in resources}


def _log(name: str) -> Grants:
    return _each("logs:CreateLogStream logs:PutLogEvents", f"<{name}.Arn>")


def _start_task(name: str) -> Grants:
    return (
        _log(f"{name}Logs")
        | _each("ecr:GetAuthorizationToken", "*")
        | _each(
            "ecr:BatchCheckLayerAvailability ecr:BatchGetImage ecr:GetDownloadUrlForLayer",
            _REPOSITORY,
        )
        | _each("secretsmanager:DescribeSecret secretsmanager:GetSecretValue", "<StoresToken>")
    )


_IN_THE_VPC = _each(
    "ec2:CreateNetworkInterface ec2:DescribeNetworkInterfaces ec2:DescribeSubnets "
    "ec2:DeleteNetworkInterface ec2:AssignPrivateIpAddresses ec2:UnassignPrivateIpAddresses",
    "*",
)
_FIND_AND_STOP_TASKS = _each("ecs:ListTasks", "* of <Cluster.Arn>") | _each(
    "ecs:DescribeTasks ecs:StopTask", f"{_ECS}:task/<Cluster>/* of <Cluster.Arn>"
)
_ROLES: dict[str, Grants] = {
    "ActorRole": _connect("actor") | _log("ActorLogs") | _IN_THE_VPC,
    "GradientRole": _connect("actor") | _log("GradientLogs") | _IN_THE_VPC,
    "ScalerTaskTaskRole": _connect("scaler")
    | _each(
        "lambda:InvokeFunction lambda:GetProvisionedConcurrencyConfig "
        "lambda:PutProvisionedConcurrencyConfig lambda:DeleteProvisionedConcurrencyConfig",
        "<ActorLive>",
    )
    | _each("lambda:InvokeFunction", "<GradientLive>")
    | _each("lambda:GetAccountSettings", "*")
    | _each(
        "ecs:RunTask",
        f"{_ECS}:task-definition/nitro-cpu-learner:* of <Cluster.Arn>",
        f"{_ECS}:task-definition/nitro-gpu-learner:* of <Cluster.Arn>",
    )
    | _each(
        "iam:PassRole",
        "<CpuLearnerTaskTaskRole.Arn> to ecs-tasks.amazonaws.com",
        "<CpuLearnerTaskExecutionRole.Arn> to ecs-tasks.amazonaws.com",
    )
    | _FIND_AND_STOP_TASKS
    | _each(
        "dynamodb:GetItem dynamodb:PutItem dynamodb:DeleteItem dynamodb:ConditionCheckItem "
        "dynamodb:Query",
        "<StoresJobs.Arn>",
    )
    | _each("s3:ListBucket", "<StoresRuns.Arn> below runs/*")
    | _each("s3:GetObject s3:DeleteObject", "<StoresRuns.Arn>/runs/*")
    | _each("logs:FilterLogEvents", "<CpuLearnerLogs.Arn>", "<ScalerLogs.Arn>", "<ActorLogs.Arn>"),
    "CpuLearnerTaskTaskRole": _connect("learner")
    | _each("s3:ListBucket", "<StoresRuns.Arn> below runs/*")
    | _each("s3:GetObject s3:PutObject s3:DeleteObject", "<StoresRuns.Arn>/runs/*"),
    "DeadManRole": _log("DeadManLogs")
    | _each(
        "lambda:GetProvisionedConcurrencyConfig lambda:DeleteProvisionedConcurrencyConfig",
        "<ActorLive>",
    )
    | _FIND_AND_STOP_TASKS
    | _each("dynamodb:GetItem", "<StoresJobs.Arn>"),
    "ScalerTaskExecutionRole": _start_task("Scaler")
    | _each("secretsmanager:DescribeSecret secretsmanager:GetSecretValue", "<StoresViewerToken>"),
    "CpuLearnerTaskExecutionRole": _start_task("CpuLearner"),
    # What CDK gives an ECS machine: nothing of ours in it.
    "GpuCapacityHostRole": _each(
        "ecs:DeregisterContainerInstance ecs:RegisterContainerInstance ecs:Submit*",
        "<Cluster.Arn>",
    )
    | _each("ecs:Poll ecs:StartTelemetrySession", "* of <Cluster.Arn>")
    | _each(
        "ecr:GetAuthorizationToken ecs:DiscoverPollEndpoint logs:CreateLogStream logs:PutLogEvents",
        "*",
    ),
    "NetworkVpcFlowLogIAMRole": _each(
        "logs:CreateLogStream logs:DescribeLogStreams logs:PutLogEvents", "<NetworkRefusals.Arn>"
    ),
}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _plain(reference: str) -> str:
    """Leave out the hash that ends a logical id."""
    return re.sub(r"(?<=\w)[0-9A-F]{8}(?=[.>])", "", reference)


def _condition(statement: dict[str, Any]) -> str:
    match statement.get("Condition"):
        case None:
            return ""
        case {"StringLike": {"s3:prefix": [prefix]}, **rest} if not rest:
            return f" below {prefix}"
        case {"ArnEquals": {"ecs:cluster": cluster}, **rest} if not rest:
            return f" of {text(cluster)}"
        case {"StringEquals": {"iam:PassedToService": service}, **rest} if not rest:
            return f" to {service}"
    return f" if {json.dumps(statement['Condition'])}"


def _grants(stack: Synthesised, role: str) -> Grants:
    found: Grants = set()
    for policy in stack.of_type("AWS::IAM::Policy").values():
        if [_plain(text(r)) for r in policy["Roles"]] != [f"<{role}>"]:
            continue
        for statement in policy["PolicyDocument"]["Statement"]:
            assert statement["Effect"] == "Allow"
            assert not {"NotAction", "NotResource"} & statement.keys()
            found |= {
                (action, _plain(text(resource) + _condition(statement)))
                for action in _list(statement["Action"])
                for resource in _list(statement["Resource"])
            }
    return found


def test_there_are_no_other_roles(synthesised: Synthesised) -> None:
    assert {name[:-8] for name in synthesised.of_type("AWS::IAM::Role")} == set(_ROLES)


@pytest.mark.parametrize("role", _ROLES)
def test_a_role_may_do_this_and_nothing_else(synthesised: Synthesised, role: str) -> None:
    assert _grants(synthesised, role) == _ROLES[role]


def test_no_role_has_more_than_its_own_policy(synthesised: Synthesised) -> None:
    for role in synthesised.of_type("AWS::IAM::Role").values():
        assert "ManagedPolicyArns" not in role
        assert "Policies" not in role
    assert not synthesised.of_type("AWS::IAM::ManagedPolicy")
    assert not synthesised.of_type("AWS::IAM::User")


def test_every_role_is_a_services(synthesised: Synthesised) -> None:
    for role in synthesised.of_type("AWS::IAM::Role").values():
        (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
        assert statement["Principal"].keys() == {"Service"}


def test_port_forwarding_adds_session_manager_and_nothing_else(variant: Variant) -> None:
    added = _grants(variant(endpoint="none"), "ScalerTaskTaskRole") - _ROLES["ScalerTaskTaskRole"]
    assert added == _each(
        "ssmmessages:CreateControlChannel ssmmessages:CreateDataChannel "
        "ssmmessages:OpenControlChannel ssmmessages:OpenDataChannel",
        "*",
    )
