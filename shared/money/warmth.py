"""Two ways to have environments warm, and which of them costs less.

Provisioned concurrency is paid for by time, and makes the duration of what runs on it cheaper.
Reuse costs nothing but a ping now and then; Lambda promises nothing, and an environment that it let
go of costs a start, for which a whole round waits.
"""

from dataclasses import replace
from typing import Literal, Self

from shared.contracts.message import Message, NonNegativeFloat
from shared.money.costs import CostBasis, lambda_gb_seconds

WarmWay = Literal["provisioned", "reuse"]
_KEPT = 0.9
"""The share of earlier rounds' weight that remains after a round."""


class WarmUse(Message):
    """A job's recent use of its environments: sums in which newer rounds weigh more."""

    held_s: NonNegativeFloat = 0.0
    """Billed time."""
    busy_gb_s: NonNegativeFloat = 0.0
    """Billed GB-seconds of its actors in it."""
    reused_s: NonNegativeFloat = 0.0
    """Billed time of the rounds that relied on reuse."""
    lost: NonNegativeFloat = 0.0
    """Environments that were gone in those although the job had started as many before."""
    waits: NonNegativeFloat = 0.0
    """Rounds that had to wait for such."""
    started: NonNegativeFloat = 0.0
    """Environments that pings found gone, and started: no round waited for those."""

    def after(
        self, held_s: float, busy_gb_s: float, *, reused: bool, lost: int, started: int = 0
    ) -> Self:
        """Return the sums after one more round; only one of reuse tells what that loses."""
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
    """Return what the time of these sums costs where so many environments are reused.

    That is actors and pings on demand, the time in which everybody waits for environments that were
    lost, and the start of those that pings found gone.
    """
    pinged = replace(basis, provisioned=0, pinged=num_environments)
    pings_usd = use.held_s * (pinged.usd_per_s - pinged.base_usd_per_s)
    waits = _per(use.waits, use.reused_s) * use.held_s
    waiting_usd = waits * basis.cold_start_s * basis.base_usd_per_s
    starting_usd = _per(use.started, use.reused_s) * use.held_s * basis.cold_ping_usd
    busy_usd = use.busy_gb_s * basis.prices.lambda_usd_per_gb_s
    return busy_usd + pings_usd + waiting_usd + starting_usd


def provisioned_usd(use: WarmUse, num_environments: int, basis: CostBasis) -> float:
    """Return what the same costs where so many environments are provisioned.

    A deployment with fewer has that part of the work on them. What starting lost environments took
    is not needed then.
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
    """Return how to keep so many environments warm; reuse, while nothing is known.

    Args:
        use: What the job's rounds were like.
        num_environments: As many as a round can still need, at least 1.
        basis: The deployment's: `provisioned` is the most it keeps.
    """
    if not basis.provisioned:
        return "reuse"
    reused_usd = reuse_usd(use, num_environments, basis)
    return "provisioned" if provisioned_usd(use, num_environments, basis) < reused_usd else "reuse"


def _per(num: float, seconds: float) -> float:
    return num / seconds if seconds else 0.0
