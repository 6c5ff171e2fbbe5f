"""Persistent storage: runs in S3, jobs in DynamoDB, tokens in Secrets Manager, logs."""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from shared.deployment.config import NitroConfig

RUNS_PREFIX = "runs"
_TOKEN_CHARS = 43
"""Letters and digits: 256 bits."""

_RETENTION = {
    1: logs.RetentionDays.ONE_DAY,
    3: logs.RetentionDays.THREE_DAYS,
    5: logs.RetentionDays.FIVE_DAYS,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    60: logs.RetentionDays.TWO_MONTHS,
    90: logs.RetentionDays.THREE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
}


class Stores(Construct):
    """Bucket, table and tokens."""

    def __init__(self, scope: Construct, id: str, *, config: NitroConfig) -> None:
        super().__init__(scope, id)
        removal = RemovalPolicy.RETAIN if config.retain_runs else RemovalPolicy.DESTROY
        self.runs = s3.Bucket(
            self,
            "Runs",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            lifecycle_rules=[
                s3.LifecycleRule(abort_incomplete_multipart_upload_after=Duration.days(1))
            ],
            removal_policy=removal,
        )
        self.jobs = dynamodb.Table(
            self,
            "Jobs",
            partition_key=_string("pk"),
            sort_key=_string("sk"),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=dynamodb.TableEncryption.DEFAULT,  # a key of KMS would bill requests
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            removal_policy=removal,
        )
        self.token = _token(self, "Token", "Bearer token of the Nitro API")
        self.viewer_token = _token(
            self, "ViewerToken", "Token of the Nitro API for those who only look"
        )

    @property
    def artifacts_url(self) -> str:
        """Location of runs, for the services' settings."""
        return f"s3://{self.runs.bucket_name}/{RUNS_PREFIX}"


def _token(scope: Construct, id: str, description: str) -> secretsmanager.Secret:
    return secretsmanager.Secret(
        scope,
        id,
        description=description,
        generate_secret_string=secretsmanager.SecretStringGenerator(
            exclude_punctuation=True, password_length=_TOKEN_CHARS
        ),
        removal_policy=RemovalPolicy.DESTROY,
    )


def _string(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)


def nitro_log_group(
    scope: Construct, id: str, *, config: NitroConfig, name: str | None = None
) -> logs.LogGroup:
    """Return a new log group; without one of ours, AWS would make one that is kept for ever."""
    return logs.LogGroup(
        scope,
        id,
        log_group_name=name,
        retention=_RETENTION[config.log_retention_days],
        removal_policy=RemovalPolicy.DESTROY,
    )
