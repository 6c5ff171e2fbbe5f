"""The cost of the AWS stack: per month when idle, per hour with jobs.

Pure functions of sizes and prices. Small usage-based items (requests, storage, logs, data) are left
out; a job's bill has every item.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.deployment.config import NitroConfig
from shared.deployment.machines import LEARNER_START_S
from shared.money.prices import SECONDS_PER_HOUR, PriceTable

if TYPE_CHECKING:
    from rich.table import Table

HOURS_PER_MONTH = 730.0
_TOKENS_USD_PER_MONTH = 2 * 0.40
_ALARMS_USD_PER_MONTH = 6 * 0.10
_ZONE_USD_PER_MONTH = 0.50
"""These three have the same price in almost every region."""
_MB_PER_GB = 1024.0
_CPU_UNITS = 1024.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CostItem:
    """One part of the stack."""

    name: str
    idle_usd_per_hour: float
    """Billed with or without jobs."""
    busy_usd_per_hour: float
    """Billed while a job runs, the idle part included."""


def stack_costs(config: NitroConfig, *, learner_instance: str | None) -> tuple[CostItem, ...]:
    """Return the cost of each part; without GPU machines, there is no learner with a GPU.

    Raises:
        ValueError: The price table lacks the learner's type.
    """
    prices = config.price_table
    scaler = SECONDS_PER_HOUR * prices.fargate_usd_per_s(
        vcpu=config.scaler_cpu / _CPU_UNITS, memory_gb=config.scaler_memory_mb / _MB_PER_GB
    )
    cache = SECONDS_PER_HOUR * prices.cache_usd_per_s(config.cache_node_type, config.cache_engine)
    gpu_learner: tuple[CostItem, ...] = ()
    if learner_instance is not None:
        usd_per_hour = SECONDS_PER_HOUR * prices.learner_usd_per_s(learner_instance)
        gpu_learner = (
            _while_busy("public IPv4 of the GPU machine", prices.public_ipv4_usd_per_hour),
            _while_busy(f"learner, {learner_instance}", usd_per_hour),
        )
    vcpu, memory_gb = config.cpu_learner_vcpu, config.cpu_learner_memory_mb / _MB_PER_GB
    cpu_learner = SECONDS_PER_HOUR * prices.fargate_usd_per_s(vcpu=vcpu, memory_gb=memory_gb)
    warm_gb = config.provisioned_concurrency * config.actor_memory_mb / _MB_PER_GB
    warm = SECONDS_PER_HOUR * warm_gb * prices.provisioned_usd_per_gb_s
    working = SECONDS_PER_HOUR * warm_gb * prices.provisioned_duration_usd_per_gb_s
    address = prices.public_ipv4_usd_per_hour
    size = f"{config.provisioned_concurrency} x {config.actor_memory_mb / _MB_PER_GB:g} GB"
    return (
        _always(f"scaler, Fargate {config.scaler_cpu}/{config.scaler_memory_mb}", scaler),
        _always(f"cache, {config.cache_node_type}", cache),
        _always("public IPv4 of the scaler", address),
        _always("two tokens in Secrets Manager", _TOKENS_USD_PER_MONTH / HOURS_PER_MONTH),
        _always("six alarms", _ALARMS_USD_PER_MONTH / HOURS_PER_MONTH),
        _always("private DNS zone", _ZONE_USD_PER_MONTH / HOURS_PER_MONTH),
        _always("HTTP API and VPC link", 0.0),
        *gpu_learner,
        _while_busy("public IPv4 of the learner on cores", address),
        _while_busy(f"learner, Fargate {vcpu} vCPU and {memory_gb:g} GB", cpu_learner),
        _while_busy(f"provisioned concurrency, {size}", warm),
        _while_busy("actors on it, at full load", working),
    )


def idle_usd_per_month(items: tuple[CostItem, ...]) -> float:
    """Return the cost of a month without jobs."""
    return HOURS_PER_MONTH * sum(item.idle_usd_per_hour for item in items)


def busy_usd_per_hour(items: tuple[CostItem, ...]) -> float:
    """Return the cost of an hour of training, including the idle part."""
    return sum(item.busy_usd_per_hour for item in items)


def costs_table(items: tuple[CostItem, ...], *, prices: PriceTable) -> "Table":
    """Return the costs for a person."""
    from rich.table import Table

    starts = ", ".join(f"{kind} in about {s:g} s" for kind, s in LEARNER_START_S.items())
    table = Table(
        title=f"Cost in US dollars, prices of {prices.region} {prices.date}",
        title_justify="left",
        caption=f"A learner starts with its first job: {starts}.",
        caption_justify="left",
        show_footer=True,
    )
    table.add_column("part", "together")
    table.add_column("idle, a month", f"{idle_usd_per_month(items):.2f}", justify="right")
    table.add_column("busy, an hour", f"{busy_usd_per_hour(items):.3f}", justify="right")
    for item in items:
        table.add_row(
            item.name,
            f"{HOURS_PER_MONTH * item.idle_usd_per_hour:.2f}",
            f"{item.busy_usd_per_hour:.3f}",
        )
    return table


def _always(name: str, usd_per_hour: float) -> CostItem:
    return CostItem(name=name, idle_usd_per_hour=usd_per_hour, busy_usd_per_hour=usd_per_hour)


def _while_busy(name: str, usd_per_hour: float) -> CostItem:
    return CostItem(name=name, idle_usd_per_hour=0.0, busy_usd_per_hour=usd_per_hour)
