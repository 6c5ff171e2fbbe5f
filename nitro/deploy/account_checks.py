"""Whether an account can run the stack, as a function of its answers."""

import math

from nitro.deploy.account import FARGATE_QUOTA, P_QUOTA, Account
from nitro.deploy.findings import Finding, ok, warning, wrong
from shared.contracts.scaling_spec import ActorRange
from shared.deployment.config import (
    UNRESERVED_CONCURRENCY,
    AccountAnswer,
    ConfigError,
    NitroConfig,
)
from shared.deployment.machines import GPU_QUOTA
from shared.money.prices import RETIRED_INSTANCES

_QUOTA_NAMES = {
    GPU_QUOTA: "Running On-Demand G and VT instances",
    P_QUOTA: "Running On-Demand P instances",
}
_WITHOUT_GPU = "the stack has no learner with a GPU and refuses jobs that need one"
_VCPUS = {"xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32, "12xlarge": 48, "16xlarge": 64}


def check_account(account: Account, config: NitroConfig) -> list[Finding]:
    """Return the findings for this deployment."""
    findings = [
        _zones(account, config),
        *_gpu(account, config),
        _fargate(account, config),
        _ecs_role(account),
        _concurrency(account, config),
        _prices(account, config),
        _alarms(config),
    ]
    return [*findings, *_refusals(account)]


def startable(account: Account, config: NitroConfig) -> tuple[str, ...]:
    """Return the machines that the learner with a GPU can run on, first choice first.

    EC2 may refuse a list with a type that the region lacks. So if the account's offers are unknown,
    retired types are left out.
    """
    offered = _offered(account, config)
    return tuple(kind for kind in offered if _fits(account, kind))


def quota_of(instance_type: str) -> str:
    """Return the code of the quota that bounds machines of this type."""
    return P_QUOTA if instance_type.startswith("p") else GPU_QUOTA


def vcpus_of(instance_type: str) -> int:
    """Return the vCPUs that a machine of this type counts against its quota."""
    return _VCPUS.get(instance_type.rpartition(".")[2], 96)


def _offered(account: Account, config: NitroConfig) -> tuple[str, ...]:
    if account.offered is not None:
        return account.offered
    return tuple(kind for kind in config.learner_instance_types if kind not in RETIRED_INSTANCES)


def _fits(account: Account, instance_type: str) -> bool:
    """Whether the account may run a machine of this type, as far as known."""
    limit = account.vcpus.get(quota_of(instance_type))
    return limit is None or vcpus_of(instance_type) <= limit


def _gpu(account: Account, config: NitroConfig) -> list[Finding]:
    if not config.learner_instance_types:
        found = "none in cdk.json (learner_instance_types): jobs that need a GPU are refused"
        return [ok("GPU machines", found)]
    if not _offered(account, config):
        return [_machines(account, config)]
    return [_machines(account, config), _vcpus(account, config)]


def _zones(account: Account, config: NitroConfig) -> Finding:
    name = "zones"
    if account.zone_ids is None or account.zones is None:
        return _unknown(name)
    try:
        config.zones(AccountAnswer(zone_ids=account.zone_ids))
    except ConfigError as error:
        return wrong(name, str(error), "choose zones, or an endpoint, in cdk.json")
    return ok(name, ", ".join(f"{z} ({account.zone_ids.get(z, '?')})" for z in account.zones))


def _fargate(account: Account, config: NitroConfig) -> Finding:
    name, limit = "Fargate vCPUs", account.vcpus.get(FARGATE_QUOTA)
    if limit is None:
        return _unknown(name)
    needed = config.scaler_cpu / 1024 + config.cpu_learner_vcpu
    found = f"{limit}; {needed:g} for the scaler and the learner on cores"
    if limit >= needed:
        return ok(name, found)
    quota = "Fargate On-Demand vCPU resource count"
    advice = _raise("fargate", FARGATE_QUOTA, quota, math.ceil(needed), account)
    if limit >= config.scaler_cpu / 1024:
        return warning(name, found, f"that learner cannot start: {advice}")
    return wrong(name, found, advice)


def _ecs_role(account: Account) -> Finding:
    name = "ECS role"
    if account.ecs_role is None:
        return _unknown(name)
    if account.ecs_role:
        return ok(name, "ECS has its role in the account")
    return warning(
        name,
        "ECS has no role in the account yet, so the first deployment may fail",
        "aws iam create-service-linked-role --aws-service-name ecs.amazonaws.com",
    )


def _alarms(config: NitroConfig) -> Finding:
    name, budget = "alarms", f"${config.monthly_budget_usd} a month"
    if config.alarm_email is not None:
        return ok(
            name, f"{config.alarm_email} receives alarms and warnings about the budget, {budget}"
        )
    return warning(
        name,
        f"nobody receives alarms, or warnings about the budget of {budget}",
        'set "alarm_email" in cdk.json to your address, and confirm the mail that AWS sends',
    )


def _machines(account: Account, config: NitroConfig) -> Finding:
    name, wanted = "GPU machines", config.learner_instance_types
    left_out = [kind for kind in wanted if kind not in _offered(account, config)]
    if account.offered is None or account.zones is None:
        found = "unknown: the account did not answer"
        if left_out:
            found += f"; {', '.join(left_out)} left out, because AWS has retired them"
        return warning(name, found, "see the refused questions")
    where = " and ".join(account.zones)
    if not account.offered:
        return warning(
            name,
            f"none of {', '.join(wanted)} is offered in {where}: {_WITHOUT_GPU}",
            "choose other availability_zones or another region, or name other types as "
            "learner_instance_types in cdk.json",
        )
    found = f"{', '.join(account.offered)} in {where}"
    if left_out:
        found += f"; not offered: {', '.join(left_out)}"
    return ok(name, found)


def _vcpus(account: Account, config: NitroConfig) -> Finding:
    name = "GPU vCPUs"
    candidates = _offered(account, config)
    limits = {code: account.vcpus.get(code) for code in map(quota_of, candidates)}
    if all(limit is None for limit in limits.values()):
        return _unknown(name)
    found = "; ".join(
        f"{_QUOTA_NAMES[code]}: {'unknown' if limit is None else limit}"
        for code, limit in limits.items()
    )
    fitting = startable(account, config)
    if fitting:
        return ok(name, f"{found}; enough for {', '.join(fitting)}")
    first = min(candidates, key=vcpus_of)
    return warning(
        name,
        f"{found}; a {first} counts {vcpus_of(first)}: {_WITHOUT_GPU}",
        _raise("ec2", quota_of(first), _QUOTA_NAMES[quota_of(first)], vcpus_of(first), account),
    )


def _concurrency(account: Account, config: NitroConfig) -> Finding:
    name = "Lambda concurrency"
    if account.lambda_limits is None:
        return _unknown(name)
    limit, unreserved = account.lambda_limits
    if config.actor_concurrency is None:
        return _shared_concurrency(account, config, limit, unreserved)
    needed = config.actor_concurrency + UNRESERVED_CONCURRENCY
    if limit >= needed > unreserved:
        # An existing stack may have reserved them itself.
        return warning(
            name,
            f"{limit} executions at once, {needed} are needed, {limit - unreserved} are reserved",
            f"its deployment will fail unless this stack has reserved {config.actor_concurrency} "
            "of them: reserve less for other functions, or raise the quota",
        )
    if limit >= needed:
        return ok(name, f"{limit} executions at once, {needed} are needed")
    advice = _raise("lambda", "L-B99A9384", "Concurrent executions", max(1000, needed), account)
    if limit > UNRESERVED_CONCURRENCY:
        left = limit - UNRESERVED_CONCURRENCY
        advice += f"; or set actor_concurrency in cdk.json to at most {left}"
    return wrong(
        name,
        f"{limit} executions at once; {config.actor_concurrency} for actors and "
        f"{UNRESERVED_CONCURRENCY} unreserved are needed",
        advice,
    )


def _shared_concurrency(
    account: Account, config: NitroConfig, limit: int, unreserved: int
) -> Finding:
    """Return the concurrency of actors that share it with the account's other functions."""
    name, usual = "Lambda concurrency", ActorRange().max
    warm = min(config.provisioned_concurrency, max(0, unreserved - UNRESERVED_CONCURRENCY))
    found = (
        f"{limit} executions at once, {unreserved} of them unreserved: at most {unreserved} "
        f"actors, {warm} of them kept warm"
    )
    if unreserved >= usual and warm == config.provisioned_concurrency:
        return ok(name, found)
    advice = _raise("lambda", "L-B99A9384", "Concurrent executions", 1000, account)
    return warning(
        name,
        found,
        f"jobs with a higher actors.max ({usual} by default) are refused: lower it, or {advice}",
    )


def _prices(account: Account, config: NitroConfig) -> Finding:
    name, table = "prices", config.price_table
    found = f"{table.name}, of {table.region}"
    if account.region == table.region:
        return ok(name, found)
    return warning(
        name,
        f"{found}; the stack is for {account.region}",
        "bills and budgets use these prices, and a more expensive region exceeds budgets; set "
        "prices in cdk.json (docs/operations.md)",
    )


def _raise(service: str, code: str, quota: str, value: int, account: Account) -> str:
    return (
        f"raise the quota '{quota}' ({code}): aws service-quotas request-service-quota-increase "
        f"--region {account.region} --service-code {service} --quota-code {code} "
        f"--desired-value {value}"
    )


def _unknown(name: str) -> Finding:
    return warning(name, "unknown: the account did not answer", "see the refused questions")


def _refusals(account: Account) -> list[Finding]:
    return [
        warning(action, f"refused: {code}", f"allow these credentials {action} to check it")
        for action, code in account.refusals.items()
    ]
