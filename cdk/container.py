"""What both services' containers have in common: no root, nothing to write to, a pulse."""

from aws_cdk import Duration
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_logs as logs
from constructs import Construct

USER = "10001:10001"
"""The images' own user; said here as well, so that an image without one cannot run as root."""


def locked_down(scope: Construct) -> ecs.LinuxParameters:
    """Return kernel settings of a container that needs no capability and reaps its children."""
    parameters = ecs.LinuxParameters(scope, "Linux", init_process_enabled=True)
    parameters.drop_capabilities(ecs.Capability.ALL)
    return parameters


def pulse(port: int, *, start_s: int) -> ecs.HealthCheck:
    """Return a health check that asks the process itself; the images hold no curl."""
    ask = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{port}/healthz', timeout=4)"
    return ecs.HealthCheck(
        command=["CMD", "python", "-c", ask],
        interval=Duration.seconds(15),
        timeout=Duration.seconds(5),
        retries=4,
        start_period=Duration.seconds(start_s),
    )


def log_to(log_group: logs.ILogGroup, stream_prefix: str) -> ecs.LogDriver:
    """Return the log driver; a stalled log service must not stall training."""
    return ecs.LogDrivers.aws_logs(
        stream_prefix=stream_prefix,
        log_group=log_group,
        mode=ecs.AwsLogDriverMode.NON_BLOCKING,
    )
