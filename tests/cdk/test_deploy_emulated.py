"""The real `cdk bootstrap`, `cdk deploy` and `cdk destroy`, against an AWS emulator.

Not reached: the types in `emulated_aws.RECORDED_ONLY`, the images (the emulator's registry says
that it has them), whatever scaler, learner and actor would do in their containers. The dead-man
switch does run: from the package that was uploaded, against what was deployed.
"""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from cdk.empty_bucket import bucket_of, empty
from cdk.image import REPOSITORY

pytestmark = pytest.mark.deploy

_EMULATOR = REPOSITORY / ".venv-emulator" / "bin" / "python"
_COMMAND_LINE = REPOSITORY / "node_modules" / "aws-cdk" / "bin" / "cdk"
# The image id of AWS's ECS GPU image is a parameter that only AWS can publish.
_CONTEXT = json.dumps({"learner_ami": "ami-0123456789abcdef0"})
_STACK = "nitro"

Cdk = Callable[..., str]


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Start the emulator; return the environment in which an AWS SDK talks to it."""
    folder = tmp_path_factory.mktemp("account")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "MINISTACK_HOST": "localhost",
        "MINISTACK_ACCOUNT_ID": "123456789012",
        "LAMBDA_EXECUTOR": "local",
        "DOCKER_HOST": "unix:///nonexistent.sock",
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
    }
    with subprocess.Popen(
        [str(_EMULATOR), str(Path(__file__).with_name("emulated_aws.py"))],
        env=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as emulator:
        reader = _wait_until_it_listens(emulator)
        try:
            yield {
                "AWS_ENDPOINT_URL": f"http://localhost:{port}",
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
                "AWS_REGION": "us-east-1",
                "AWS_DEFAULT_REGION": "us-east-1",
            }
        finally:
            emulator.terminate()
            reader.join()


@pytest.fixture
def aws_account(account: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Point boto3 at the emulator."""
    for name, value in account.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def cdk(account: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Cdk:
    """Run the CDK's command line against the emulator; return what it said."""
    folder = tmp_path_factory.mktemp("cdk")
    environment = os.environ | account | {"HOME": str(folder), "CI": "true"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    # No image is built or pushed: the emulator's registry answers that it has each of them.
    environment["CDK_DOCKER"] = "true"

    def run(*arguments: str) -> str:
        options = ["--output", str(folder / "cdk.out"), "--context", f"nitro={_CONTEXT}"]
        done = subprocess.run(
            ["node", str(_COMMAND_LINE), *arguments, *options],
            cwd=REPOSITORY,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


@pytest.fixture(scope="module")
def deployed(cdk: Cdk) -> Cdk:
    """Have the stack deployed; return the command line."""
    cdk("bootstrap")
    cdk("deploy", "--require-approval", "never")
    return cdk


def _wait_until_it_listens(emulator: subprocess.Popen[str]) -> threading.Thread:
    """Return the thread that reads what the emulator says, until it says no more."""
    said: list[str] = []
    over = threading.Event()

    def read() -> None:
        for line in emulator.stdout or ():
            said.append(line)
            if "Running on" in line:
                over.set()
        over.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    over.wait()
    if not any("Running on" in line for line in said):
        pytest.fail("".join(said))
    return reader


def _resource(prefix: str, kind: str) -> str:
    pages = boto3.client("cloudformation").get_paginator("list_stack_resources")
    (found,) = [
        resource["PhysicalResourceId"]
        for page in pages.paginate(StackName=_STACK)
        for resource in page["StackResourceSummaries"]
        if resource["ResourceType"] == kind and resource["LogicalResourceId"].startswith(prefix)
    ]
    return str(found)


def _desired(cluster: str, service: str) -> int:
    (found,) = boto3.client("ecs").describe_services(cluster=cluster, services=[service])[
        "services"
    ]
    return int(found["desiredCount"])


@pytest.mark.usefixtures("aws_account", "deployed")
def test_the_stack_is_there_and_nothing_costly_is_on() -> None:
    (stack,) = boto3.client("cloudformation").describe_stacks(StackName=_STACK)["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    assert {o["OutputKey"] for o in stack["Outputs"]} == {
        "ActorAlias",
        "ApiUrl",
        "FirstCurl",
        "JobsTable",
        "ReadToken",
        "RunsBucket",
    }
    functions = boto3.client("lambda")
    with pytest.raises(functions.exceptions.ProvisionedConcurrencyConfigNotFoundException):
        functions.get_provisioned_concurrency_config(
            FunctionName=_resource("Actor", "AWS::Lambda::Function"), Qualifier="live"
        )
    learner = _resource("LearnerService", "AWS::ECS::Service")
    assert _desired(_resource("Cluster", "AWS::ECS::Cluster"), learner) == 0


@pytest.mark.usefixtures("aws_account", "deployed")
def test_a_token_was_made() -> None:
    secret = _resource("StoresToken", "AWS::SecretsManager::Secret")
    token = boto3.client("secretsmanager").get_secret_value(SecretId=secret)["SecretString"]
    assert len(token) == 43


@pytest.mark.usefixtures("aws_account", "deployed")
def test_the_deployed_switch_turns_off_what_was_left_on() -> None:
    functions, services = boto3.client("lambda"), boto3.client("ecs")
    actor = _resource("Actor", "AWS::Lambda::Function")
    cluster = _resource("Cluster", "AWS::ECS::Cluster")
    learner = _resource("LearnerService", "AWS::ECS::Service")
    functions.put_provisioned_concurrency_config(
        FunctionName=actor, Qualifier="live", ProvisionedConcurrentExecutions=64
    )
    services.update_service(cluster=cluster, service=learner, desiredCount=1)

    answer: dict[str, Any] = json.load(
        functions.invoke(FunctionName=_resource("DeadMan", "AWS::Lambda::Function"))["Payload"]
    )

    assert answer["closed"] == ["provisioned concurrency", "learner"]
    assert _desired(cluster, learner) == 0
    with pytest.raises(functions.exceptions.ProvisionedConcurrencyConfigNotFoundException):
        functions.get_provisioned_concurrency_config(FunctionName=actor, Qualifier="live")


def test_deploying_again_changes_nothing(deployed: Cdk) -> None:
    assert "(no changes)" in deployed("deploy", "--require-approval", "never")


@pytest.mark.usefixtures("aws_account")
def test_nothing_of_the_stack_is_left_in_the_end(deployed: Cdk) -> None:
    bucket = _resource("StoresRuns", "AWS::S3::Bucket")
    table = _resource("StoresJobs", "AWS::DynamoDB::Table")
    boto3.client("s3").put_object(Bucket=bucket, Key="runs/job/job.json", Body=b"{}")

    assert empty(bucket_of(_STACK)) == 1
    deployed("destroy", "--force")

    buckets = [b["Name"] for b in boto3.client("s3").list_buckets()["Buckets"]]
    assert bucket not in buckets
    assert table not in boto3.client("dynamodb").list_tables()["TableNames"]
    functions = boto3.client("lambda").list_functions()["Functions"]
    assert [f["FunctionName"] for f in functions if f["FunctionName"].startswith(_STACK)] == []
