"""The time and cost of measured rounds on AWS, with functions and, for comparison, on servers.

Ledger, budget, summary and experiments share this pure model. Serverless, a round takes

    overhead + launch + cold start, if any environment was not warm + slowest actor + learner

and costs the learner, cache, scaler and provisioned concurrency for this time, plus all executions.
Serverful, like the paper's baselines (section 8.1), the actors of a round share the cores of one
machine, and the learner's and the actors' machine are paid for all the time, even while idle.
"""

import math
from dataclasses import dataclass

from shared.contracts.billing import BillingUnit, LedgerItem, ServerfulCost
from shared.money.costs import CostBasis, cpu_share, lambda_gb_seconds, launch_ramp_s
from shared.money.prices import PriceTable


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRound:
    """Measurements of one round; durations are a Lambda function's, not a full core's."""

    num_invocations: int
    """Actors and evaluation episodes."""
    durations_s: tuple[float, ...]
    """Duration of every execution, as AWS bills it or would bill it."""
    slowest_sample_s: float
    """Longest rollout; the sum of both executions if there were two."""
    slowest_evaluation_s: float
    requests: int
    learner_s: float
    """The learner's own work: update, curvature, checkpoint."""
    warm: int = 0
    """Invocations that found provisioned concurrency ready."""
    cold: int = 0
    """Invocations that had to wait for a new environment."""
    launch_s: float = 0.0
    """From the decision to the last request, as measured."""
    overhead_s: float = 0.0
    """Publishing the policy and asking for the round."""
    own_s: float = 0.0
    """From the plan to the end of all tasks on the learner's own cores."""
    own_busy_s: float = 0.0
    """Core seconds of all these tasks."""
    own_tasks: int = 0
    """Number of these tasks."""
    deadline_s: float = math.inf
    """How long the learner waits at most."""
    open_rounds: int = 1
    """Number of rounds open at a time, including this round."""

    def core_s(self, basis: CostBasis) -> float:
        """Return the full-core seconds of all actors and evaluations."""
        return sum(self.durations_s) * cpu_share(basis.memory_mb) + self.own_busy_s

    def slowest_core_s(self, basis: CostBasis) -> float:
        """Return a lower bound for the full-core seconds of the slowest actor.

        For the learner's own cores only the sum is known, so their mean counts.
        """
        slowest_s = max(self.slowest_sample_s, self.slowest_evaluation_s)
        own_s = self.own_busy_s / self.own_tasks if self.own_tasks else 0.0
        return max(slowest_s * cpu_share(basis.memory_mb), own_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """A serverful cluster: a learner machine, and a machine whose cores the actors share."""

    learner_instance: str
    actor_instance: str = "c5.4xlarge"
    actor_cores: int = 16
    """vCPUs of the actor machine; each runs one actor at a full core's speed."""

    def priced_in(self, prices: PriceTable) -> bool:
        """Whether a table has the prices of both machines."""
        return {self.learner_instance, self.actor_instance} <= prices.learner_usd_per_hour.keys()

    def usd_per_s(self, prices: PriceTable) -> float:
        """Return the price of one second of both machines.

        Raises:
            ValueError: The table lacks one of the machines.
        """
        return prices.learner_usd_per_s(self.learner_instance) + prices.learner_usd_per_s(
            self.actor_instance
        )


PAPER_SERVERS = Servers(learner_instance="p3.2xlarge")
"""Section 8.1: one p3.2xlarge and one c5.4xlarge."""
SERVERFUL_ASSUMPTIONS = (
    f"Servers: the actors share {PAPER_SERVERS.actor_cores} cores without loss, each at the speed "
    "of a core here; the learner is as fast as here; launching and boot take no time; learner and "
    "actor machine are paid for the whole run. The paper's p3.2xlarge can no longer be started.",
)
"""Assumptions of the comparison with servers."""


@dataclass(frozen=True, slots=True)
class BillItem:
    """A quantity and its unit price."""

    item: LedgerItem
    quantity: float
    unit: BillingUnit
    unit_price_usd: float

    @property
    def amount_usd(self) -> float:
        """Quantity times unit price."""
        return self.quantity * self.unit_price_usd


def serverless_round_s(measured: MeasuredRound, basis: CostBasis) -> float:
    """Return a round's wall time on AWS.

    Requests go out while environments start, so the longer of the two counts. Actors on the
    learner's own cores work in parallel, at the measured speed. The learner waits no longer than
    the deadline. Evaluation episodes run in parallel and count only if they take longer. Open
    rounds overlap: the time is divided by their number, but is at least the learner's own work.
    """
    launch_s = max(launch_ramp_s(measured.num_invocations), measured.launch_s)
    begun_s = measured.overhead_s + launch_s + (basis.cold_start_s if measured.cold else 0.0)
    acted_s = max(begun_s + measured.slowest_sample_s, measured.overhead_s + measured.own_s)
    trained_s = min(acted_s, measured.deadline_s) + measured.learner_s
    evaluated_s = min(begun_s + measured.slowest_evaluation_s, measured.deadline_s)
    latency_s = max(trained_s, evaluated_s)
    return max(measured.learner_s, latency_s / measured.open_rounds)


def serverful_round_s(measured: MeasuredRound, basis: CostBasis, servers: Servers) -> float:
    """Return the same round's wall time on servers.

    On a full core an actor needs its Lambda duration times the function's CPU share, or its
    measured time on the learner's own core. The work is spread evenly over the actor machine's
    cores, which no schedule beats, and a round takes at least as long as its slowest actor. Open
    rounds overlap: the time is divided by their number, but is at least the work of the learner or
    of all cores together.
    """
    evenly_s = measured.core_s(basis) / servers.actor_cores
    acted_s = max(evenly_s, measured.slowest_core_s(basis))
    latency_s = measured.overhead_s + acted_s + measured.learner_s
    return max(measured.learner_s, evenly_s, latency_s / measured.open_rounds)


def held_items(held_s: float, basis: CostBasis) -> tuple[BillItem, ...]:
    """Return the time-based items for a period in which a job holds the system."""
    kept_warm_gb_s = held_s * basis.provisioned_gb
    kept_warm_usd = basis.prices.provisioned_usd_per_gb_s
    learner = BillItem("learner", held_s, "second", basis.learner_usd_per_s)
    return (
        *((learner,) if basis.learner_usd_per_s else ()),  # none if it is the user's own
        BillItem("cache", held_s, "second", basis.cache_usd_per_s),
        BillItem("scaler", held_s, "second", basis.scaler_usd_per_s),
        BillItem("provisioned_concurrency", kept_warm_gb_s, "GB-second", kept_warm_usd),
        BillItem("pings", held_s * basis.pings_per_s, "request", basis.ping_usd),
    )


def execution_items(measured: MeasuredRound, basis: CostBasis) -> tuple[BillItem, ...]:
    """Return durations and requests; the shortest executions count as warm.

    A cold start is billed like the execution that waits for it.
    """
    prices = basis.prices
    gb_s = sorted(lambda_gb_seconds(d, basis.memory_mb) for d in measured.durations_s)
    cold_gb_s = measured.cold * lambda_gb_seconds(basis.cold_start_s, basis.memory_mb)
    warm_gb_s, demand_gb_s = sum(gb_s[: measured.warm]), sum(gb_s[measured.warm :]) + cold_gb_s
    warm_usd, demand_usd = prices.provisioned_duration_usd_per_gb_s, prices.lambda_usd_per_gb_s
    return (
        BillItem("lambda_duration", warm_gb_s, "GB-second", warm_usd),
        BillItem("lambda_duration", demand_gb_s, "GB-second", demand_usd),
        BillItem("lambda_requests", measured.requests, "request", prices.lambda_usd_per_request),
    )


def serverful_cost(wall_s: float, servers: Servers, prices: PriceTable) -> ServerfulCost:
    """Return the cost of a cluster for this time.

    Raises:
        ValueError: The table lacks one of its machines.
    """
    return ServerfulCost(
        learner_instance=servers.learner_instance,
        actor_instance=servers.actor_instance,
        wall_s=wall_s,
        total_usd=wall_s * servers.usd_per_s(prices),
    )


def own_serverful_cost(wall_s: float, learner: str, basis: CostBasis) -> ServerfulCost | None:
    """Return the cost of the job's learner, named `learner`, with the paper's actor machine.

    Return None if the table has no price for the actor machine.
    """
    actors, prices = PAPER_SERVERS.actor_instance, basis.prices
    if actors not in prices.learner_usd_per_hour:
        return None
    usd_per_s = basis.learner_usd_per_s + prices.learner_usd_per_s(actors)
    return ServerfulCost(
        learner_instance=learner,
        actor_instance=actors,
        wall_s=wall_s,
        total_usd=wall_s * usd_per_s,
    )


def projection_assumptions(basis: CostBasis) -> tuple[str, ...]:
    """Return in words the assumptions behind the time of a round on AWS."""
    return (
        f"Prices: {basis.prices.source} ({basis.prices.date}).",
        "Learner, cache, scaler and provisioned concurrency are billed for the time the rounds "
        "would take on AWS: publishing the policy and asking for the round, launch (the measured "
        "sending of requests, or 1,000 environments at once and 1,000 more per 10 s, whichever is "
        "longer), cold start, slowest actor, then the learner's own time as measured here. Boot "
        "times are left out.",
        f"A round waits {basis.cold_start_s:g} s for new environments when it launches more than "
        "are provisioned and any earlier round of the job started; each of them is billed for it. "
        "Environments stay warm from round to round, until they are released.",
        f"Actor durations are measured here and divided by the CPU share of {basis.memory_mb} MB "
        "on Lambda (1,769 MB is one core), at most the time-out of "
        f"{basis.function_timeout_s:g} s.",
    )
