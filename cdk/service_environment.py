"""What the two services are told: the variables of their `Settings`, by role.

A test compares the names with the settings classes, so that a renamed field cannot go unnoticed.
"""

from aws_cdk import Duration

from cdk.actor_function import ALIAS
from cdk.scaler_service import PORT_NUMBER
from shared.deployment.config import NitroConfig
from shared.money.prices import RETIRED_INSTANCES, PriceTable


def scaler_environment(
    *,
    config: NitroConfig,
    learner_types: tuple[str, ...],
    region: str,
    function: str,
    table: str,
    artifacts: str,
    cluster: str,
    learner_service: str,
) -> dict[str, str]:
    """Return the scaler's variables."""
    return {
        "AWS_REGION": region,  # the SDK's own: S3 has no setting of ours
        "NITRO_HOST": "0.0.0.0",
        "NITRO_PORT": str(PORT_NUMBER),
        "NITRO_STORE": "dynamodb",
        "NITRO_TABLE": table,
        "NITRO_ARTIFACTS": artifacts,
        "NITRO_CACHE_MEMORY_MB": str(config.cache_memory_mb),
        "NITRO_LAMBDA_REGION": region,
        "NITRO_LAMBDA_FUNCTION": function,
        "NITRO_LAMBDA_QUALIFIER": ALIAS,
        "NITRO_LAMBDA_MEMORY_MB": str(config.actor_memory_mb),
        "NITRO_LAMBDA_TIMEOUT_S": str(config.actor_timeout_s),
        "NITRO_LAMBDA_READ_TIMEOUT_S": str(config.actor_timeout_s + 15),
        **_reserved(config),
        "NITRO_PROVISIONED_CONCURRENCY": str(config.provisioned_concurrency),
        "NITRO_ECS_CLUSTER": cluster,
        "NITRO_ECS_SERVICE": learner_service,
        "NITRO_LONGEST_JOB_S": str(Duration.hours(config.longest_job_hours).to_seconds()),
        "NITRO_LEARNER_WAIT_S": str(Duration.minutes(config.learner_wait_minutes).to_seconds()),
        "NITRO_LEDGER_CLOCK": "wall",
        **_price_variables(config),
        "NITRO_LEARNER_INSTANCE": billed_as(learner_types, config.price_table),
        "NITRO_CACHE_NODE": config.cache_node_type,
        "NITRO_CACHE_ENGINE": config.cache_engine,
        "NITRO_SCALER_VCPU": f"{config.scaler_cpu / 1024:g}",
        "NITRO_SCALER_MEMORY_GB": f"{config.scaler_memory_mb / 1024:g}",
    }


def learner_environment(
    *, region: str, scaler_url: str, artifacts: str, scratch: str
) -> dict[str, str]:
    """Return the learner's variables."""
    return {
        # ECS tells it to tasks on Fargate only. Without it the SDK would look for the bucket in
        # us-east-1, where the task has no way to.
        "AWS_REGION": region,
        "NITRO_SCALER_URL": scaler_url,
        "NITRO_ARTIFACTS": artifacts,
        "NITRO_RUNS_DIR": f"{scratch}/runs",
        # A missing driver must fail the task, not turn a GPU hour into a CPU hour.
        "NITRO_DEVICE": "cuda",
    }


def dead_man_environment(
    *, table: str, function: str, cluster: str, learner_service: str
) -> dict[str, str]:
    """Return the dead-man switch's variables."""
    return {
        "NITRO_TABLE": table,
        "NITRO_LAMBDA_FUNCTION": function,
        "NITRO_LAMBDA_QUALIFIER": ALIAS,
        "NITRO_ECS_CLUSTER": cluster,
        "NITRO_ECS_SERVICE": learner_service,
    }


def billed_as(instance_types: tuple[str, ...], prices: PriceTable) -> str:
    """Return the dearest type that may come: a budget must hold whichever does.

    Types that AWS no longer starts count only where the list has no other.
    """
    possible = [kind for kind in instance_types if kind not in RETIRED_INSTANCES]
    return max(possible or instance_types, key=prices.learner_usd_per_s)


def _reserved(config: NitroConfig) -> dict[str, str]:
    cap = config.actor_concurrency
    return {} if cap is None else {"NITRO_LAMBDA_RESERVED_CONCURRENCY": str(cap)}


def _price_variables(config: NitroConfig) -> dict[str, str]:
    if config.prices is None:
        return {"NITRO_PRICE_TABLE": config.price_table.name}
    return {"NITRO_PRICES": config.prices.model_dump_json()}
