"""Log groups, all alike: kept for as long as configured, gone with the stack."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_logs as logs
from constructs import Construct

from shared.deployment.config import NitroConfig

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


def nitro_log_group(scope: Construct, id: str, *, config: NitroConfig) -> logs.LogGroup:
    """Return a new log group; without one of ours, AWS would make one that is kept for ever."""
    return logs.LogGroup(
        scope,
        id,
        retention=_RETENTION[config.log_retention_days],
        removal_policy=RemovalPolicy.DESTROY,
    )
