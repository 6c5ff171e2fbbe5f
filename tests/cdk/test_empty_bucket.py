"""Emptying the bucket of runs, against S3 and CloudFormation as moto speaks them."""

import io
import json
import subprocess
from collections.abc import Iterator

import boto3
import pytest
from botocore.exceptions import ClientError

from cdk.containers import REPOSITORY
from cdk.empty_bucket import bucket_of, empty, main
from shared.deployment.config import read_config

_TEMPLATE = {
    "Resources": {"Runs": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "runs-to-go"}}},
    "Outputs": {"RunsBucket": {"Value": {"Ref": "Runs"}}},
}


@pytest.fixture
def stack(aws: str) -> Iterator[str]:
    cloud = boto3.client("cloudformation", region_name="us-east-1")
    cloud.create_stack(StackName="nitro-to-go", TemplateBody=json.dumps(_TEMPLATE))
    yield "nitro-to-go"
    empty("runs-to-go")
    cloud.delete_stack(StackName="nitro-to-go")


@pytest.mark.usefixtures("aws")
def test_every_object_goes(stack: str) -> None:
    client = boto3.client("s3")
    for number in range(3):
        client.put_object(Bucket="runs-to-go", Key=f"runs/job/{number}", Body=b"")

    assert empty(bucket_of(stack)) == 3

    assert "Contents" not in client.list_objects_v2(Bucket="runs-to-go")
    assert empty(bucket_of(stack)) == 0


@pytest.mark.usefixtures("aws")
def test_the_configured_region_is_where_it_looks() -> None:
    cloud = boto3.client("cloudformation", region_name="eu-west-1")
    template = json.dumps(_TEMPLATE).replace("runs-to-go", "runs-far-away")
    cloud.create_stack(StackName="nitro-far-away", TemplateBody=template)

    assert bucket_of("nitro-far-away", region="eu-west-1") == "runs-far-away"
    assert empty("runs-far-away", region="eu-west-1") == 0
    with pytest.raises(ClientError, match="does not exist"):
        bucket_of("nitro-far-away")
    cloud.delete_stack(StackName="nitro-far-away")


@pytest.mark.usefixtures("aws")
def test_another_stacks_buckets_are_left_alone() -> None:
    other = _TEMPLATE | {"Outputs": {"Data": {"Value": "precious"}}}
    other["Resources"] = {"Topic": {"Type": "AWS::SNS::Topic"}}
    boto3.client("cloudformation").create_stack(
        StackName="somebody-elses", TemplateBody=json.dumps(other)
    )
    with pytest.raises(LookupError, match="somebody-elses"):
        bucket_of("somebody-elses")


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize("answer", ["", "n\n", "no\n"])
def test_it_asks_first(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    stack, bucket = read_config({}).name, "runs-to-stay"
    template = json.loads(json.dumps(_TEMPLATE).replace("runs-to-go", bucket))
    cloud = boto3.client("cloudformation")
    cloud.create_stack(StackName=stack, TemplateBody=json.dumps(template))
    boto3.client("s3").put_object(Bucket=bucket, Key="runs/job/job.json", Body=b"{}")
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))

    assert main([]) == 1

    assert boto3.client("s3").list_objects_v2(Bucket=bucket)["KeyCount"] == 1
    assert main(["--yes"]) == 0
    cloud.delete_stack(StackName=stack)


@pytest.mark.parametrize(("arguments", "asks"), [("", True), ("--force", False), ("-f", False)])
def test_taking_the_stack_down_asks_twice_or_never(arguments: str, asks: bool) -> None:
    commands = subprocess.run(
        ["make", "--dry-run", "destroy", f"ARGS={arguments}"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    (emptying,) = (line for line in commands if "cdk.empty_bucket" in line)
    (destroying,) = (line for line in commands if " destroy" in line)
    assert emptying.endswith("--yes") != asks
    assert destroying.rstrip().endswith(arguments or "destroy")


def _configured(monkeypatch: pytest.MonkeyPatch, **fields: object) -> None:
    config = read_config({"name": "nitro-to-go", **fields})
    monkeypatch.setattr("cdk.empty_bucket.configured", lambda: config)


@pytest.mark.usefixtures("aws")
def test_the_stack_of_that_name_in_another_region_is_left_alone(
    stack: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    boto3.client("s3").put_object(Bucket="runs-to-go", Key="runs/job/job.json", Body=b"{}")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")  # where the CDK would take the stack down
    _configured(monkeypatch)

    assert main(["--yes"]) == 1

    assert f"{stack} does not exist" in capsys.readouterr().err
    assert boto3.client("s3").list_objects_v2(Bucket="runs-to-go")["KeyCount"] == 1


@pytest.mark.usefixtures("aws", "stack")
def test_the_stack_of_that_name_in_another_account_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    boto3.client("s3").put_object(Bucket="runs-to-go", Key="runs/job/job.json", Body=b"{}")
    _configured(monkeypatch, account="210987654321", region="us-east-1")

    assert main(["--yes"]) == 1

    assert "use credentials of 210987654321" in capsys.readouterr().err
    assert boto3.client("s3").list_objects_v2(Bucket="runs-to-go")["KeyCount"] == 1


@pytest.mark.usefixtures("aws")
def test_nothing_is_taken_down_before_keeping_it_was_deployed(
    stack: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _configured(monkeypatch, retain_runs=True)

    assert main([]) == 1, "`make destroy` stops here, before CloudFormation deletes the table"
    assert "would go Runs; `make deploy` first" in capsys.readouterr().err

    template = json.loads(json.dumps(_TEMPLATE))
    template["Resources"]["Runs"]["DeletionPolicy"] = "Retain"
    boto3.client("cloudformation").update_stack(StackName=stack, TemplateBody=json.dumps(template))
    assert main([]) == 0


def test_an_account_that_cannot_be_asked_is_told_about(
    aws: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--yes"]) == 1
    assert "the bucket of runs was not emptied" in capsys.readouterr().err
