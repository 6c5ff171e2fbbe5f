"""Empties the bucket of runs: `python -m cdk.empty_bucket`, the first step of `make destroy`.

CloudFormation removes no bucket that holds anything, and the CDK's own way around that is a
Lambda function in the stack that may delete everything at any time. Where `retain_runs` is set the
bucket stays as it is. It asks before it deletes, unless told `--yes`.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from cdk.app import configured
from cdk.config import ConfigError

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef

_OUTPUT = "RunsBucket"
_FAILED = 1


def bucket_of(stack: str, *, region: str | None = None) -> str:
    """Return the name of a stack's bucket of runs; without a region, where the SDK is set to look.

    Raises:
        LookupError: It has none, so it is no stack of ours.
    """
    stacks = boto3.client("cloudformation", region_name=region).describe_stacks(StackName=stack)[
        "Stacks"
    ]
    for output in stacks[0].get("Outputs", []):
        if output["OutputKey"] == _OUTPUT:
            return str(output["OutputValue"])
    raise LookupError(f"stack {stack!r} has no output {_OUTPUT}: is it a stack of Nitro?")


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
    """Empty the configured stack's bucket, unless its runs are to be kept; return the exit code."""
    try:
        config = configured()
        if config.retain_runs:
            sys.stderr.write("retain_runs is set: the runs stay\n")
            return 0
        bucket = bucket_of(config.name, region=config.region)
        if "--yes" not in arguments and not _confirmed(bucket):
            sys.stderr.write("nothing was deleted\n")
            return _FAILED
        num_deleted = empty(bucket, region=config.region)
    except (BotoCoreError, ClientError, ConfigError, LookupError) as error:
        sys.stderr.write(f"the bucket of runs was not emptied: {error}\n")
        return _FAILED
    sys.stderr.write(f"{num_deleted} objects deleted\n")
    return 0


def _confirmed(bucket: str) -> bool:
    sys.stderr.write(f"Delete all runs in s3://{bucket}, for good? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
