"""Whether an account can run the stack, as a function of its answers."""

from nitro.deploy.account import G_QUOTA, P_QUOTA, Account
from nitro.deploy.findings import Finding, ok, warning, wrong
from shared.contracts.scaling_spec import ActorRange
from shared.deployment.config import UNRESERVED_CONCURRENCY, NitroConfig

_QUOTA_NAMES = {
    G_QUOTA: "Running On-Demand G and VT instances",
    P_QUOTA: "Running On-Demand P instances",
}
_VCPUS = {"xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32, "12xlarge": 48, "16xlarge": 64}


def check_account(account: Account, config: NitroConfig) -> list[Finding]:
    """Return what the answers mean for this deployment."""
    findings = [
        _machines(account, config),
        _vcpus(account, config),
        _concurrency(account, config),
        _prices(account, config),
    ]
    return [*findings, *_refusals(account)]


def learner_instance(account: Account, config: NitroConfig) -> str:
    """Return the machine the learner would run on: the first that is offered."""
    return next(iter(account.offered or config.learner_instance_types))


def quota_of(instance_type: str) -> str:
    """Return the code of the quota that bounds machines of this type."""
    return P_QUOTA if instance_type.startswith("p") else G_QUOTA


def vcpus_of(instance_type: str) -> int:
    """Return how many vCPUs a machine of this type counts against its quota."""
    return _VCPUS.get(instance_type.rpartition(".")[2], 96)


def _machines(account: Account, config: NitroConfig) -> Finding:
    name, wanted = "GPU machines", config.learner_instance_types
    if account.offered is None or account.zones is None:
        return _unknown(name)
    where = " and ".join(account.zones)
    if not account.offered:
        return wrong(
            name,
            f"none of {', '.join(wanted)} is offered in {where}",
            "choose other availability_zones or another region, or name other types as "
            "learner_instance_types in cdk.json",
        )
    found = f"{', '.join(account.offered)} in {where}"
    if account.offered[0] == wanted[0]:
        return ok(name, found)
    return ok(name, f"{found}; the first choice {wanted[0]} is not offered")


def _vcpus(account: Account, config: NitroConfig) -> Finding:
    name = "GPU vCPUs"
    candidates = account.offered or config.learner_instance_types
    limits = {code: account.vcpus.get(code) for code in map(quota_of, candidates)}
    if all(limit is None for limit in limits.values()):
        return _unknown(name)
    found = "; ".join(
        f"{_QUOTA_NAMES[code]}: {'unknown' if limit is None else limit}"
        for code, limit in limits.items()
    )
    fitting = [t for t in candidates if vcpus_of(t) <= (limits[quota_of(t)] or 0)]
    if fitting:
        return ok(name, f"{found}; enough for {', '.join(fitting)}")
    first = min(candidates, key=vcpus_of)
    return wrong(
        name,
        f"{found}; a {first} counts {vcpus_of(first)}",
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
        # A stack that is there already may itself be who has reserved them.
        return warning(
            name,
            f"{limit} executions at once, {needed} are needed, {limit - unreserved} are reserved",
            f"unless this stack itself has reserved {config.actor_concurrency} of them, its "
            "deployment will fail: have other functions reserve less, or raise the quota",
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
    """Return what actors have that share the account's concurrency with its other functions."""
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
        f"jobs that may launch more (actors.max, {usual} unless it is given) are refused: submit "
        f"them with less, or {advice}",
    )


def _prices(account: Account, config: NitroConfig) -> Finding:
    name, table = "prices", config.price_table
    found = f"{table.name}, of {table.region}"
    if account.region == table.region:
        return ok(name, found)
    return warning(
        name,
        f"{found}; the stack is for {account.region}",
        "bills and budgets go by them: where it is dearer, a budget is passed; set prices in "
        "cdk.json (docs/operations.md)",
    )


def _raise(service: str, code: str, quota: str, value: int, account: Account) -> str:
    return (
        f"raise the quota '{quota}' ({code}): aws service-quotas request-service-quota-increase "
        f"--region {account.region} --service-code {service} --quota-code {code} "
        f"--desired-value {value}"
    )


def _unknown(name: str) -> Finding:
    return warning(name, "unknown: the account did not say", "see the questions it refused")


def _refusals(account: Account) -> list[Finding]:
    return [
        warning(
            action, f"refused: {code}", f"let these credentials use {action} to have it checked"
        )
        for action, code in account.refusals.items()
    ]
