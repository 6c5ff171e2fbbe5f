"""The Lambda functions: actor, gradient function and dead-man switch.

The first two share an image with two commands, and reach only the cache. The switch turns off the
capacity of a silent scaler. It is outside the VPC, because it must work when nothing else does.
"""

from collections.abc import Mapping

from aws_cdk import Duration, IgnoreMode
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from cdk.containers import REPOSITORY, actor_image
from cdk.network import Network
from cdk.stores import Stores, nitro_log_group
from cdk.trajectory_cache import TrajectoryCache
from shared.contracts.learner_kind import MachineKind
from shared.deployment.config import NitroConfig

ALIAS = "live"
_ARCHITECTURES = {"x86_64": lambda_.Architecture.X86_64, "arm64": lambda_.Architecture.ARM_64}
GRADIENT_MEMORY_MB = 1769
"""One full core: NumPy's products take no more."""
GRADIENT_TIMEOUT_S = 15
_MAX_EVENT_AGE = Duration.seconds(60)
"""The shortest Lambda allows: a round is over long before a queued event would be retried."""
_EVERY = Duration.minutes(1)


class ImageFunction(Construct):
    """A function of the actor image, its published version and the alias that is invoked."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        config: NitroConfig,
        network: Network,
        cache: TrajectoryCache,
        description: str,
        memory_mb: int,
        timeout_s: int,
        concurrency: int | None = None,
        command: str | None = None,
    ) -> None:
        """Declare it.

        Args:
            scope: Its parent.
            id: Its name there.
            config: Of the deployment.
            network: With the one subnet it is in.
            cache: The only thing it may reach.
            description: What it does.
            memory_mb: Its memory.
            timeout_s: Longest invocation.
            concurrency: Executions reserved for it; None reserves none.
            command: Its handler, where that is not the image's own.
        """
        super().__init__(scope, id)
        self.log_group = nitro_log_group(self, "Logs", config=config)
        self.role = _role(self)
        self.function = lambda_.DockerImageFunction(
            self,
            "Function",
            description=description,
            code=actor_image("functions/actor/Dockerfile", config=config, command=command),
            architecture=_ARCHITECTURES[config.architecture],
            memory_size=memory_mb,
            timeout=Duration.seconds(timeout_s),
            reserved_concurrent_executions=concurrency,
            # The scaler accounts for every launch; Lambda's own retries would be unaccounted.
            retry_attempts=0,
            max_event_age=_MAX_EVENT_AGE,
            role=self.role,
            log_group=self.log_group,
            vpc=network.vpc,
            vpc_subnets=ec2.SubnetSelection(subnets=[network.isolated]),
            security_groups=[network.actors],
            environment=cache.environment("actor"),
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


class ActorFunction(ImageFunction):
    """One rollout per invocation."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        config: NitroConfig,
        network: Network,
        cache: TrajectoryCache,
    ) -> None:
        super().__init__(
            scope,
            id,
            config=config,
            network=network,
            cache=cache,
            description="Nitro actor: one rollout per invocation",
            memory_mb=config.actor_memory_mb,
            timeout_s=config.actor_timeout_s,
            concurrency=config.actor_concurrency,
        )


class GradientFunction(ImageFunction):
    """One gradient per invocation, for jobs that learn on functions."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        config: NitroConfig,
        network: Network,
        cache: TrajectoryCache,
    ) -> None:
        super().__init__(
            scope,
            id,
            config=config,
            network=network,
            cache=cache,
            description="Nitro learner function: one gradient per invocation",
            memory_mb=GRADIENT_MEMORY_MB,
            timeout_s=GRADIENT_TIMEOUT_S,
            command="functions.gradient.handler.handler",
        )


class DeadManSwitch(Construct):
    """Function and schedule."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        config: NitroConfig,
        stores: Stores,
        actor: ActorFunction,
        cluster: ecs.ICluster,
        families: Mapping[MachineKind, str],
    ) -> None:
        super().__init__(scope, id)
        self.log_group = nitro_log_group(self, "Logs", config=config)
        self.role = _role(self)
        self.function = lambda_.Function(
            self,
            "Function",
            description="Nitro dead-man switch: turns off what a silent scaler left on",
            runtime=lambda_.Runtime.PYTHON_3_14,
            architecture=lambda_.Architecture.X86_64,
            handler="functions.dead_man.handler.handler",
            code=_code(),
            role=self.role,
            memory_size=256,
            timeout=Duration.seconds(45),
            # The next run is in a minute; a retry would only race it.
            retry_attempts=0,
            log_group=self.log_group,
            environment={
                "NITRO_TABLE": stores.jobs.table_name,
                "NITRO_LAMBDA_FUNCTION": actor.function.function_name,
                "NITRO_LAMBDA_QUALIFIER": ALIAS,
                **learner_families(cluster, families),
            },
        )
        events.Rule(
            self,
            "EveryMinute",
            description="Nitro dead-man switch",
            schedule=events.Schedule.rate(_EVERY),
            targets=[targets.LambdaFunction(self.function, retry_attempts=0)],
        )


def learner_families(cluster: ecs.ICluster, families: Mapping[MachineKind, str]) -> dict[str, str]:
    """Return the settings by which scaler and switch find the tasks of learners."""
    names = {kind: f"NITRO_ECS_{kind.upper()}_FAMILY" for kind in families}
    found = {names[kind]: family for kind, family in families.items()}
    return {"NITRO_ECS_CLUSTER": cluster.cluster_name, **found}


def _role(scope: Construct) -> iam.Role:
    """Return a function's role; CDK's own would bring managed policies for all of CloudWatch."""
    return iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))


def _code() -> lambda_.Code:
    """Return a package of the switch's own folder, at the path its handler is imported by."""
    return lambda_.Code.from_asset(
        str(REPOSITORY),
        exclude=["*", "!functions/__init__.py", "!functions/dead_man/*.py"],
        ignore_mode=IgnoreMode.DOCKER,
    )
