"""Ends tasks and empties the bucket: `python -m cdk.empty_bucket`, `make destroy`'s first step.

CloudFormation removes no bucket that holds anything, and the CDK's own way around that is a
Lambda function in the stack that may delete everything at any time. Where `retain_runs` is set the
bucket stays as it is, and nothing is taken down before that has been deployed. It asks before it
deletes, unless told `--yes`.
"""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from cdk.app import configured
from cdk.drain import drain
from shared.deployment.config import ConfigError

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef

_OUTPUT = "RunsBucket"
_KEPT = frozenset({"AWS::DynamoDB::Table", "AWS::S3::Bucket"})
"""Types of resources that `retain_runs` keeps."""
_FAILED = 1


def bucket_of(stack: str, *, region: str | None = None, account: str | None = None) -> str:
    """Return the name of a stack's bucket of runs; without a region, where the SDK is set to look.

    Raises:
        LookupError: It has none, so it is not Nitro's stack, or it is in another account.
    """
    stacks = boto3.client("cloudformation", region_name=region).describe_stacks(StackName=stack)[
        "Stacks"
    ]
    found = stacks[0]["StackId"].split(":")[4]
    if account is not None and found != account:
        raise LookupError(
            f"account is {account} in cdk.json, and the credentials at hand are of {found}, which "
            f"has a stack {stack!r}, too: use credentials of {account}"
        )
    for output in stacks[0].get("Outputs", []):
        if output["OutputKey"] == _OUTPUT:
            return str(output["OutputValue"])
    raise LookupError(f"stack {stack!r} has no output {_OUTPUT}: is it a stack of Nitro?")


def not_kept(stack: str, *, region: str | None = None) -> list[str]:
    """Return the data of runs and jobs that the deployed stack would delete."""
    cloud = boto3.client("cloudformation", region_name=region)
    template: Any = cloud.get_template(StackName=stack, TemplateStage="Original")["TemplateBody"]
    return [
        name
        for name, resource in template["Resources"].items()
        if resource["Type"] in _KEPT and resource.get("DeletionPolicy") != "Retain"
    ]


def empty(bucket: str, *, region: str | None = None) -> int:
    """Delete every object of a bucket; return how many there were."""
    client = boto3.client("s3", region_name=region)
    num_deleted = 0
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        names: list[ObjectIdentifierTypeDef] = [
            {"Key": found["Key"]} for found in page.get("Contents", [])
        ]
        if names:
            client.delete_objects(Bucket=bucket, Delete={"Objects": names, "Quiet": True})
            num_deleted += len(names)
    return num_deleted


def main(arguments: Sequence[str]) -> int:
    """End the configured stack's tasks, and empty its bucket unless runs are retained.

    Returns:
        The exit code.
    """
    try:
        config = configured()
        # The CDK goes by this variable, of which boto3 knows nothing.
        region = config.region or os.environ.get("AWS_REGION")
        bucket = bucket_of(config.name, region=region, account=config.account)
        if config.retain_runs:
            going = not_kept(config.name, region=region)
            if going:
                sys.stderr.write(
                    "retain_runs is set, but not in what was deployed: with the stack would go "
                    f"{', '.join(going)}; `make deploy` first\n"
                )
                return _FAILED
        elif "--yes" not in arguments and not _confirmed(bucket):
            sys.stderr.write("nothing was deleted\n")
            return _FAILED
        drain(config.name, region=region)
        if config.retain_runs:
            sys.stderr.write("retain_runs is set: the runs stay\n")
        else:
            sys.stderr.write(f"{empty(bucket, region=region)} objects deleted\n")
    except (BotoCoreError, ClientError, ConfigError, LookupError, TimeoutError) as error:
        sys.stderr.write(f"the bucket of runs was not emptied: {error}\n")
        return _FAILED
    return 0


def _confirmed(bucket: str) -> bool:
    sys.stderr.write(f"Delete all runs in s3://{bucket}, for good? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
