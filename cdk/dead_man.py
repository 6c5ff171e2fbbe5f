"""The dead-man switch: a small function that turns off what a silent scaler left on."""

from aws_cdk import Duration, IgnoreMode
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from cdk.image import REPOSITORY
from cdk.log_group import nitro_log_group
from cdk.roles import lambda_role
from shared.deployment.config import NitroConfig

_EVERY = Duration.minutes(1)


class DeadManSwitch(Construct):
    """Function and schedule; outside the VPC, because it must work when nothing else does."""

    def __init__(
        self, scope: Construct, id: str, *, config: NitroConfig, environment: dict[str, str]
    ) -> None:
        super().__init__(scope, id)
        self.log_group = nitro_log_group(self, "Logs", config=config)
        self.role = lambda_role(self, "Role")
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
            # The next look comes in a minute; repeating one that failed would only race it.
            retry_attempts=0,
            log_group=self.log_group,
            environment=environment,
        )
        events.Rule(
            self,
            "EveryMinute",
            description="Nitro dead-man switch",
            schedule=events.Schedule.rate(_EVERY),
            targets=[targets.LambdaFunction(self.function, retry_attempts=0)],
        )


def _code() -> lambda_.Code:
    """Return a package of the switch's own folder, at the path its handler is imported by."""
    return lambda_.Code.from_asset(
        str(REPOSITORY),
        exclude=["*", "!functions/__init__.py", "!functions/dead_man/*.py"],
        ignore_mode=IgnoreMode.DOCKER,
    )
