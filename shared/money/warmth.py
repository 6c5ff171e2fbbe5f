"""Two ways to keep environments warm, and the choice of the cheaper way.

Provisioned concurrency costs money by time, and makes the duration of its invocations cheaper.
Reuse costs only an occasional ping. But Lambda gives no guarantee: each environment that it removes
costs a start, for which a whole round waits.
"""

from dataclasses import replace
from typing import Literal, Self

from shared.contracts.message import Message, NonNegativeFloat
from shared.money.costs import CostBasis, lambda_gb_seconds

WarmWay = Literal["provisioned", "reuse"]
_KEPT = 0.9
"""Factor per round on the weight of earlier rounds."""


class WarmUse(Message):
    """A job's recent use of its environments: sums in which newer rounds weigh more."""

    held_s: NonNegativeFloat = 0.0
    """Billed time."""
    busy_gb_s: NonNegativeFloat = 0.0
    """Billed GB-seconds of its actors in this time."""
    reused_s: NonNegativeFloat = 0.0
    """Billed time of the rounds that relied on reuse."""
    lost: NonNegativeFloat = 0.0
    """Environments missing in these rounds although the job had started enough before."""
    waits: NonNegativeFloat = 0.0
    """Rounds that had to wait for a missing environment."""
    started: NonNegativeFloat = 0.0
    """Missing environments that pings started, so that no round waited."""

    def after(
        self, held_s: float, busy_gb_s: float, *, reused: bool, lost: int, started: int = 0
    ) -> Self:
        """Return the sums after another round; only rounds with reuse add to its losses."""
        changed: dict[str, float] = {
            "held_s": _KEPT * self.held_s + held_s,
            "busy_gb_s": _KEPT * self.busy_gb_s + busy_gb_s,
        }
        if reused:
            changed["reused_s"] = _KEPT * self.reused_s + held_s
            changed["lost"] = _KEPT * self.lost + lost
            changed["waits"] = _KEPT * self.waits + bool(lost)
            changed["started"] = _KEPT * self.started + started
        return self.model_copy(update=changed)


def reuse_usd(use: WarmUse, num_environments: int, basis: CostBasis) -> float:
    """Return the cost of the time in these sums if `num_environments` are reused.

    It includes actors and pings on demand, the time spent waiting for lost environments, and the
    start of environments that pings found missing.
    """
    pinged = replace(basis, provisioned=0, pinged=num_environments)
    pings_usd = use.held_s * (pinged.usd_per_s - pinged.base_usd_per_s)
    waits = _per(use.waits, use.reused_s) * use.held_s
    waiting_usd = waits * basis.cold_start_s * basis.base_usd_per_s
    starting_usd = _per(use.started, use.reused_s) * use.held_s * basis.cold_ping_usd
    busy_usd = use.busy_gb_s * basis.prices.lambda_usd_per_gb_s
    return busy_usd + pings_usd + waiting_usd + starting_usd


def provisioned_usd(use: WarmUse, num_environments: int, basis: CostBasis) -> float:
    """Return the cost of the same time if `num_environments` are provisioned.

    A deployment with fewer provisioned environments runs that share of the work on them. The time
    to start lost environments is saved.
    """
    prices = basis.prices
    num = min(num_environments, basis.provisioned)
    idle_usd = num * basis.memory_gb * use.held_s * prices.provisioned_usd_per_gb_s
    starts = _per(use.lost, use.reused_s) * use.held_s
    busy_gb_s = use.busy_gb_s - starts * lambda_gb_seconds(basis.cold_start_s, basis.memory_mb)
    part = num / num_environments
    dearer = prices.lambda_usd_per_gb_s
    duration_usd = part * prices.provisioned_duration_usd_per_gb_s + (1.0 - part) * dearer
    return idle_usd + max(0.0, busy_gb_s) * duration_usd


def cheaper_way(use: WarmUse, num_environments: int, basis: CostBasis) -> WarmWay:
    """Return the cheaper way to keep `num_environments` warm; reuse while nothing is known.

    Args:
        use: The job's recent use.
        num_environments: Most environments that a later round can need, at least 1.
        basis: The deployment's prices; `provisioned` is its upper limit.
    """
    if not basis.provisioned:
        return "reuse"
    reused_usd = reuse_usd(use, num_environments, basis)
    return "provisioned" if provisioned_usd(use, num_environments, basis) < reused_usd else "reuse"


def _per(num: float, seconds: float) -> float:
    return num / seconds if seconds else 0.0
