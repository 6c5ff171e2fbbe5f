"""A deployment's basis for bills: its configured sizes and prices."""

from nitro.planning.ways import Learner
from shared.contracts.job_spec import JobSpec
from shared.contracts.learner_kind import LearnerKind
from shared.contracts.learner_task import MB_PER_GB
from shared.deployment.config import NitroConfig
from shared.deployment.machines import LEARNER_START_S, network_mb_per_s
from shared.hyperparameters.presets import ALGORITHMS, resolve
from shared.money.costs import CostBasis
from shared.money.prices import RETIRED_INSTANCES

_CPU_UNITS = 1024.0
_COLD_START_S = 2.0
"""The scaler's assumption for AWS."""
_PING_EVERY_S = 240.0
"""The scaler's interval of pings."""


def learners(config: NitroConfig) -> tuple[Learner, ...]:
    """Return a deployment's learners."""
    basis = cost_basis(config)
    kinds: tuple[LearnerKind, ...] = ("cpu", "gpu") if config.learner_instance_types else ("cpu",)
    return tuple(
        Learner(
            kind=kind,
            basis=basis.with_learner(kind),
            start_s=LEARNER_START_S[kind],
            cores=int(config.cpu_learner_vcpu) if kind == "cpu" else 0,
            cache_bytes_per_s=_cache_bytes_per_s(config),
        )
        for kind in kinds
    )


def function_learner(config: NitroConfig, spec: JobSpec) -> Learner | None:
    """Return a learner with learner functions; None if they cannot compute the gradients."""
    if spec.is_recurrent or not ALGORITHMS[spec.algorithm].on_functions:
        return None
    values = resolve(spec.algorithm, spec.preset, spec.hyperparameters)
    passes: int = getattr(values, "num_epochs", 1)
    return Learner(
        kind="functions",
        basis=cost_basis(config).with_learner("cpu"),
        start_s=LEARNER_START_S["cpu"],
        calls=passes * spec.learner_functions.slices,
        functions=spec.learner_functions.num,
        cache_bytes_per_s=_cache_bytes_per_s(config),
    )


def _cache_bytes_per_s(config: NitroConfig) -> float:
    return 1e6 * network_mb_per_s(config.cache_node_type)


def cost_basis(config: NitroConfig) -> CostBasis:
    """Return the basis of a deployment's bills, as configured in its scaler."""
    prices = config.price_table
    types = config.learner_instance_types
    possible = [machine for machine in types if machine not in RETIRED_INSTANCES]
    return CostBasis(
        prices=prices,
        # The most expensive type: a budget must hold for every type.
        learner_usd_per_s=max(map(prices.learner_usd_per_s, possible or types), default=0.0),
        cpu_learner_usd_per_s=prices.fargate_usd_per_s(
            vcpu=config.cpu_learner_vcpu, memory_gb=config.cpu_learner_memory_mb / MB_PER_GB
        ),
        cache_usd_per_s=prices.cache_usd_per_s(config.cache_node_type, config.cache_engine),
        scaler_usd_per_s=prices.fargate_usd_per_s(
            vcpu=config.scaler_cpu / _CPU_UNITS, memory_gb=config.scaler_memory_mb / MB_PER_GB
        ),
        memory_mb=config.actor_memory_mb,
        function_timeout_s=float(config.actor_timeout_s),
        provisioned=0,
        cold_start_s=_COLD_START_S,
        ping_every_s=_PING_EVERY_S,
    )
