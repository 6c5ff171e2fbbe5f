"""What is kept, how it is kept, and what goes when the stack goes."""

import pytest

from tests.cdk.template import Synthesised, text

_KEPT = ("AWS::S3::Bucket", "AWS::DynamoDB::Table")


def _policies(stack: Synthesised, kind: str) -> set[str]:
    return {
        resource[policy]
        for resource in stack.template["Resources"].values()
        if resource["Type"] == kind
        for policy in ("DeletionPolicy", "UpdateReplacePolicy")
    }


def test_the_bucket_is_closed_and_encrypted(synthesised: Synthesised) -> None:
    bucket = synthesised.only("AWS::S3::Bucket")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    denied = [
        statement["Condition"]
        for statement in synthesised.only("AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Deny"
    ]
    assert {"Bool": {"aws:SecureTransport": "false"}} in denied


def test_the_table_has_the_stores_keys_and_can_go_back_in_time(synthesised: Synthesised) -> None:
    table = synthesised.only("AWS::DynamoDB::Table")
    assert [k["AttributeName"] for k in table["KeySchema"]] == ["pk", "sk"]
    assert "GlobalSecondaryIndexes" not in table
    assert {a["AttributeType"] for a in table["AttributeDefinitions"]} == {"S"}
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert table["SSESpecification"] == {"SSEEnabled": False}, "the key that costs nothing"


def test_the_token_is_made_by_aws_and_long_enough(synthesised: Synthesised) -> None:
    for name in ("StoresToken", "StoresViewerToken"):
        secret = synthesised.named("AWS::SecretsManager::Secret", name)
        assert "SecretString" not in secret
        assert secret["GenerateSecretString"] == {"ExcludePunctuation": True, "PasswordLength": 43}


def test_nothing_stays_when_the_stack_goes(synthesised: Synthesised) -> None:
    policies = {
        resource.get("DeletionPolicy", "Delete")
        for resource in synthesised.template["Resources"].values()
    }
    assert policies == {"Delete"}


@pytest.mark.parametrize("kind", _KEPT)
def test_runs_and_jobs_can_be_kept(changed: Synthesised, kind: str) -> None:
    assert _policies(changed, kind) == {"Retain"}


def test_logs_are_kept_as_long_as_configured(
    synthesised: Synthesised, changed: Synthesised
) -> None:
    groups = synthesised.of_type("AWS::Logs::LogGroup")
    assert {g["RetentionInDays"] for g in groups.values()} == {30}
    assert len(groups) == 7
    shorter = changed.of_type("AWS::Logs::LogGroup")
    assert {g["RetentionInDays"] for g in shorter.values()} == {7}


def test_every_function_and_container_logs_into_one_of_them(synthesised: Synthesised) -> None:
    groups = synthesised.of_type("AWS::Logs::LogGroup").keys()
    used = [
        f["LoggingConfig"]["LogGroup"]["Ref"]
        for f in synthesised.of_type("AWS::Lambda::Function").values()
    ]
    for task in synthesised.of_type("AWS::ECS::TaskDefinition").values():
        for container in task["ContainerDefinitions"]:
            options = container["LogConfiguration"]["Options"]
            assert options["mode"] == "non-blocking"
            used.append(text(options["awslogs-group"]).strip("<>"))
    assert len(set(used)) == 5
    assert set(used) <= groups
