"""The worst-case cost of a round, and the AWS sizes and rates behind its time and cost.

This module prices a round before its launch; `shared.money.round_costs` prices the measured round.
The second price never exceeds the first, which makes a budget a hard limit.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

from shared.contracts.learner_kind import LearnerKind
from shared.contracts.learner_task import DEPLOYMENTS_TASK, MB_PER_GB, LearnerTask
from shared.contracts.rollouts import LONGEST_PING_S
from shared.money.prices import PriceTable

MB_PER_VCPU = 1769
"""Memory at which Lambda gives a function one full vCPU."""
SPOT_SHARE = 0.33
"""Price of Fargate Spot as a share of the on-demand price, as once in us-east-1. AWS changes it at
times, but never charges more than on demand.
"""
LAUNCH_BURST = 1000
"""Environments that Lambda starts at once for one function."""
LAUNCHES_PER_S = 100.0
"""Environments per second beyond the burst: 1,000 every 10 seconds."""
EXECUTIONS_PER_TASK = 2
"""A failed actor is retried once, so a task runs at most twice."""
_PING_S = 0.2
_PER_PING_S = 0.004
"""A quarter of a vCPU sends a request in 2.3 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostBasis:
    """Prices and sizes behind a deployment's bill."""

    prices: PriceTable
    learner_usd_per_s: float
    """Price of the job's learner: the deployment's GPU machine, unless set by `with_learner`."""
    cpu_learner_usd_per_s: float
    """Price of the deployment's learner without a GPU."""
    cache_usd_per_s: float
    scaler_usd_per_s: float
    memory_mb: int
    """Memory of the actor function."""
    function_timeout_s: float
    """Seconds after which Lambda ends an invocation."""
    provisioned: int
    """Environments kept warm while a job runs."""
    cold_start_s: float = 0.0
    """Seconds from a new environment's request to its handler."""
    pinged: int = 0
    """Idle environments pinged while a job runs, so that Lambda keeps them."""
    ping_every_s: float = math.inf
    """Seconds between two pings of an environment."""
    gradient_memory_mb: int = MB_PER_VCPU
    """Memory of the gradient function."""
    gradient_timeout_s: float = 15.0
    """Seconds after which Lambda ends an invocation of the gradient function."""
    shares_cores: bool = False
    """Whether functions run on the learner's own cores, as on one machine."""

    def with_learner(self, kind: LearnerKind, task: LearnerTask = DEPLOYMENTS_TASK) -> Self:
        """Return the deployment's basis for a job with this kind of learner and task."""
        if kind == "gpu":
            return self
        if kind == "external":
            return replace(self, learner_usd_per_s=0.0)
        usd_per_s = self.cpu_learner_usd_per_s
        if task.size is not None:
            cpu, memory_mb = task.size
            usd_per_s = self.prices.fargate_usd_per_s(vcpu=cpu, memory_gb=memory_mb / MB_PER_GB)
        if task.spot:
            usd_per_s *= SPOT_SHARE
        return replace(self, learner_usd_per_s=usd_per_s)

    @property
    def memory_gb(self) -> float:
        """Memory of the actor function in Lambda's unit of billing."""
        return self.memory_mb / MB_PER_GB

    @property
    def provisioned_gb(self) -> float:
        """Memory of the environments kept warm."""
        return self.provisioned * self.memory_gb

    @property
    def base_usd_per_s(self) -> float:
        """Price of one second of learner, cache and scaler."""
        return self.learner_usd_per_s + self.cache_usd_per_s + self.scaler_usd_per_s

    @property
    def pings_per_s(self) -> float:
        """Pings per second that keep idle environments warm."""
        return self.pinged / self.ping_every_s

    @property
    def ping_usd(self) -> float:
        """Price of one ping, including its duration."""
        held_s = ping_s(self.pinged, timeout_s=self.function_timeout_s)
        gb_s = lambda_gb_seconds(held_s, self.memory_mb)
        return gb_s * self.prices.lambda_usd_per_gb_s + self.prices.lambda_usd_per_request

    @property
    def cold_ping_usd(self) -> float:
        """Price of a new environment that a ping starts because none was left."""
        gb_s = lambda_gb_seconds(self.cold_start_s, self.memory_mb)
        return gb_s * self.prices.lambda_usd_per_gb_s

    @property
    def usd_per_s(self) -> float:
        """Price of one second while a job holds the system, without its invocations."""
        return (
            self.base_usd_per_s
            + self.provisioned_gb * self.prices.provisioned_usd_per_gb_s
            + self.pings_per_s * self.ping_usd
        )

    @property
    def worst_usd_per_s(self) -> float:
        """Worst case of `usd_per_s`: every ping has to start a new environment."""
        return self.usd_per_s + self.pings_per_s * self.cold_ping_usd


def cpu_share(memory_mb: int) -> float:
    """Return a single-threaded function's share of one CPU core, in (0, 1].

    >>> cpu_share(1769), round(cpu_share(1024), 2)
    (1.0, 0.58)
    """
    return min(1.0, memory_mb / MB_PER_VCPU)


def lambda_billed_s(duration_s: float) -> float:
    """Return a billed duration: Lambda rounds up to a millisecond.

    >>> lambda_billed_s(0.0101), lambda_billed_s(lambda_billed_s(0.0101))
    (0.011, 0.011)
    """
    # Rounded to a nanosecond first: 0.003 s is 3 ms although 0.003 * 1000 is a little more than 3.
    return math.ceil(round(duration_s * 1000.0, 6)) / 1000.0


def lambda_gb_seconds(duration_s: float, memory_mb: int) -> float:
    """Return billed GB-seconds: the billed duration times the memory."""
    return lambda_billed_s(duration_s) * (memory_mb / MB_PER_GB)


def ping_s(num_environments: int, *, timeout_s: float = math.inf) -> float:
    """Return how long a ping occupies its environment, so that no environment gets two pings.

    All pings must be sent before the first ends. The limit is half of the function's time-out: a
    ping that Lambda ends would end its environment, too.

    >>> ping_s(0), round(ping_s(64), 3)
    (0.2, 0.456)
    """
    return min(LONGEST_PING_S, timeout_s / 2.0, _PING_S + _PER_PING_S * num_environments)


def launch_ramp_s(num_invocations: int) -> float:
    """Return how long Lambda takes to start this many environments from zero.

    >>> launch_ramp_s(64), launch_ramp_s(3000)
    (0.0, 20.0)
    """
    return max(0, num_invocations - LAUNCH_BURST) / LAUNCHES_PER_S


def projected_duration_s(measured_s: float, *, memory_mb: int, timeout_s: float) -> float:
    """Return an invocation's duration on Lambda, from its duration on one full core.

    A function with a fraction of a core takes proportionally longer, but at most its time-out.
    """
    return min(timeout_s, measured_s / cpu_share(memory_mb))


def deadline_s(num_invocations: int, *, function_timeout_s: float, slack_s: float) -> float:
    """Return how long a learner waits for a round: every actor may time out twice."""
    return launch_ramp_s(num_invocations) + EXECUTIONS_PER_TASK * function_timeout_s + slack_s


def worst_case_launch_usd(num_invocations: int, basis: CostBasis) -> float:
    """Return the worst-case cost of tasks: each twice a cold start and the time-out, on demand."""
    prices = basis.prices
    gb_s = lambda_gb_seconds(basis.cold_start_s + basis.function_timeout_s, basis.memory_mb)
    duration_usd = gb_s * max(prices.lambda_usd_per_gb_s, prices.provisioned_duration_usd_per_gb_s)
    return num_invocations * EXECUTIONS_PER_TASK * (duration_usd + prices.lambda_usd_per_request)


def worst_case_round_usd(
    num_invocations: int, *, waiting_s: float, learner_s: float, basis: CostBasis
) -> float:
    """Return the worst-case cost of a round, including evaluation episodes.

    It includes waiting until the deadline; `learner_s` covers update, curvature and checkpoint.
    """
    held_usd = (waiting_s + learner_s) * basis.worst_usd_per_s
    return worst_case_launch_usd(num_invocations, basis) + held_usd
