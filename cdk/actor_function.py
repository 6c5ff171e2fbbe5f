"""The actor: one rollout per invocation, as a Lambda function without network but the cache."""

from aws_cdk import Duration
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from cdk.image import actor_image
from cdk.log_group import nitro_log_group
from cdk.roles import lambda_role
from shared.deployment.config import NitroConfig

ALIAS = "live"
_MAX_EVENT_AGE = Duration.seconds(60)
"""The shortest Lambda allows: a round is over long before a queued event would be retried."""


class ActorFunction(Construct):
    """Function, published version and the alias that is invoked."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        config: NitroConfig,
        vpc: ec2.IVpc,
        subnet: ec2.ISubnet,
        security_group: ec2.ISecurityGroup,
        environment: dict[str, str],
    ) -> None:
        super().__init__(scope, id)
        self.log_group = nitro_log_group(self, "Logs", config=config)
        self.role = lambda_role(self, "Role")
        self.function = lambda_.DockerImageFunction(
            self,
            "Function",
            description="Nitro actor: one rollout per invocation",
            code=actor_image("functions/actor/Dockerfile", config=config),
            architecture=lambda_.Architecture.X86_64,
            memory_size=config.actor_memory_mb,
            timeout=Duration.seconds(config.actor_timeout_s),
            reserved_concurrent_executions=config.actor_concurrency,
            # The scaler accounts for every launch; one that Lambda repeats would be nobody's.
            retry_attempts=0,
            max_event_age=_MAX_EVENT_AGE,
            role=self.role,
            log_group=self.log_group,
            vpc=vpc,
            vpc_subnets=ec2.SubnetSelection(subnets=[subnet]),
            security_groups=[security_group],
            environment=environment,
        )
        self.alias = lambda_.Alias(
            self,
            "Live",
            alias_name=ALIAS,
            version=self.function.current_version,
            # Provisioned concurrency is put on it while jobs run, by the scaler and never by us.
            retry_attempts=0,
            max_event_age=_MAX_EVENT_AGE,
        )
