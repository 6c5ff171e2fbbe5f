"""The AWS account's offers and quotas, read through boto3; nothing is changed."""

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from nitro.errors import EXIT_FAILED, CommandError
from shared.deployment.machines import GPU_QUOTA
from shared.deployment.zones import first_zones

if TYPE_CHECKING:
    import boto3
    from botocore.config import Config

T = TypeVar("T")

P_QUOTA = "L-417A185B"
"""Running On-Demand P instances, in vCPUs."""
FARGATE_QUOTA = "L-3032A538"
"""vCPUs of Fargate tasks on demand."""
_QUOTAS = {GPU_QUOTA: "ec2", P_QUOTA: "ec2", FARGATE_QUOTA: "fargate"}
"""The service of each quota."""
_ECS_ROLE = "AWSServiceRoleForECS"
_NO_SDK = (
    "`nitro doctor --aws` needs boto3: install Nitro with its extra `local` (the scaler's part "
    "brings it), or `pip install boto3`"
)
_NO_CREDENTIALS = (
    "no usable AWS credentials: sign in (`aws sso login`), or set AWS_PROFILE, or "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)
_REFUSED = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
"""Errors of unusable credentials, as opposed to a single missing permission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The account's answers for one region; None where it did not answer."""

    region: str
    zone_ids: dict[str, str] | None
    """Ids of the region's zones, by name."""
    zones: tuple[str, ...] | None
    """The zones in which the stack starts machines."""
    offered: tuple[str, ...] | None
    """Machines of our list that these zones offer, in our order."""
    vcpus: dict[str, int | None]
    """vCPUs the account may run, by quota code."""
    ecs_role: bool | None
    """Whether ECS has its role in the account."""
    lambda_limits: tuple[int, int] | None
    """Concurrent executions of all its functions together, and the unreserved part."""
    refusals: dict[str, str]
    """Reasons for missing answers, by question."""


def ask_account(
    *,
    region: str | None,
    zones: tuple[str, ...] | None,
    linked: bool,
    instance_types: Sequence[str],
) -> Account:
    """Ask the account of the default credentials.

    Args:
        region: Which region; None means that of the credentials.
        zones: The stack's zones; None means the region's first two, as for the CDK.
        linked: Whether API Gateway has to reach into them.
        instance_types: Machines the learner may run on, first choice first.

    Raises:
        CommandError: boto3, region or credentials are missing, or AWS cannot be reached.
    """
    session = _session(region)
    refusals: dict[str, str] = {}
    limits = _answer(refusals, "lambda:GetAccountSettings", partial(_concurrency, session))
    ids = _answer(refusals, "ec2:DescribeAvailabilityZones", partial(_zone_ids, session))
    if zones is None and ids is not None:
        zones = first_zones(ids, linked=linked)
    offered = None
    if zones is not None and instance_types:
        offered = _answer(
            refusals,
            "ec2:DescribeInstanceTypeOfferings",
            partial(_offered, session, instance_types, zones),
        )
    return Account(
        region=session.region_name,
        zone_ids=ids,
        zones=zones,
        offered=offered,
        vcpus={
            code: _answer(
                refusals, "servicequotas:GetServiceQuota", partial(_quota, session, service, code)
            )
            for code, service in _QUOTAS.items()
        },
        ecs_role=_answer(refusals, "iam:GetRole", partial(_has_ecs_role, session)),
        lambda_limits=limits,
        refusals=refusals,
    )


def _session(region: str | None) -> "boto3.Session":
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise CommandError(_NO_SDK) from None
    try:
        # The CDK uses this variable, which boto3 ignores.
        session = boto3.Session(region_name=region or os.environ.get("AWS_REGION"))
        credentials = session.get_credentials()
    except BotoCoreError as error:
        raise CommandError(f"{_NO_CREDENTIALS} ({error})") from error
    if credentials is None:
        raise CommandError(_NO_CREDENTIALS)
    if session.region_name is None:
        raise CommandError("no AWS region: name one with --region or AWS_REGION")
    return session


def _answer(refusals: dict[str, str], what: str, ask: Callable[[], T]) -> T | None:
    """Return an answer, or None with the reason noted: the other questions still count."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return ask()
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in _REFUSED:
            raise CommandError(f"{_NO_CREDENTIALS}: AWS answers {code}") from None
        refusals[what] = code
        return None
    except BotoCoreError as error:
        raise CommandError(f"{what}: {error}", exit_code=EXIT_FAILED) from error


def _zone_ids(session: "boto3.Session") -> dict[str, str]:
    with closing(session.client("ec2", config=_config())) as client:
        found = client.describe_availability_zones(
            Filters=[{"Name": "zone-type", "Values": ["availability-zone"]}]
        )["AvailabilityZones"]
    return {zone["ZoneName"]: zone["ZoneId"] for zone in found}


def _offered(
    session: "boto3.Session", instance_types: Sequence[str], zones: Sequence[str]
) -> tuple[str, ...]:
    with closing(session.client("ec2", config=_config())) as client:
        pages = client.get_paginator("describe_instance_type_offerings").paginate(
            LocationType="availability-zone",
            Filters=[
                {"Name": "instance-type", "Values": list(instance_types)},
                {"Name": "location", "Values": list(zones)},
            ],
        )
        found = {
            offering["InstanceType"] for page in pages for offering in page["InstanceTypeOfferings"]
        }
    return tuple(kind for kind in instance_types if kind in found)


def _quota(session: "boto3.Session", service: str, code: str) -> int:
    with closing(session.client("service-quotas", config=_config())) as client:
        quota = client.get_service_quota(ServiceCode=service, QuotaCode=code)["Quota"]
    return int(quota["Value"])


def _has_ecs_role(session: "boto3.Session") -> bool:
    with closing(session.client("iam", config=_config())) as client:
        try:
            client.get_role(RoleName=_ECS_ROLE)
        except client.exceptions.NoSuchEntityException:
            return False
    return True


def _concurrency(session: "boto3.Session") -> tuple[int, int]:
    """Return the limit and its unreserved part."""
    with closing(session.client("lambda", config=_config())) as client:
        limit = client.get_account_settings()["AccountLimit"]
    all_of_it = int(limit["ConcurrentExecutions"])
    return all_of_it, int(limit.get("UnreservedConcurrentExecutions", all_of_it))


def _config() -> "Config":
    from botocore.config import Config

    # A person waits for the answer.
    return Config(connect_timeout=5, read_timeout=20, retries={"total_max_attempts": 2})
