"""The ways to train a job, each with its time and cost.

The model is the ledger's: `shared.money` prices predicted rounds like finished ones. Unlike a bill,
it includes the start of the learner or of the server.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from nitro.planning.workload import Workload, cache_bytes, on_functions, rounds
from shared.contracts.learner_kind import LearnerKind
from shared.contracts.message import Message, NonNegativeFloat, PositiveInt
from shared.money.costs import CostBasis, cpu_share, lambda_gb_seconds
from shared.money.one_server import BOOT_S, SERVER_CORES, one_server_round_s
from shared.money.round_costs import execution_items, held_items, serverless_round_s

Place = Literal["here", "server", "own", "serverless"]
"""`own`: on the cores of a learner that exists while the job runs, without functions."""
WhatLearns = LearnerKind | Literal["functions"]
GRADIENT_CALL_S = 0.04
"""Overhead of a learner function's call: request, invocation, weights, slice and answer. From
recorded runs on busy cores; not measured on AWS.
"""
_BILLED_BESIDE_S = 0.01
"""The part of the overhead in which the function runs."""
ACTORS = (8, 16, 64, 256, 1000)
"""Numbers of serverless actors to compare."""
SERVERS = ("c7i.xlarge", "c7i.4xlarge", "c7i.16xlarge")
"""Servers to compare, with 4, 16 and 64 cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """The basis of a serverless job's learner, and its start."""

    kind: WhatLearns
    basis: CostBasis
    start_s: float
    """From a job's submission to its first round."""
    cores: int = 0
    """Cores of its machine for own actors; 0 without own actors."""
    calls: int = 0
    """Gradients of an update that functions compute."""
    functions: int = 1
    """Functions at a time."""
    cache_bytes_per_s: float = math.inf
    """Sustained network rate of the cache's node."""

    def update_s(self, workload: Workload) -> float:
        """Return the learner's work after a round."""
        if self.kind == "gpu":
            return workload.gpu_update_s
        if not self.calls:
            return workload.update_s
        each_s = GRADIENT_CALL_S + workload.update_s / self.calls
        return math.ceil(self.calls / self.functions) * each_s

    def gradients_usd(self, workload: Workload) -> float:
        """Return the cost of one update's functions."""
        if not self.calls:
            return 0.0
        basis, prices = self.basis, self.basis.prices
        each_s = _BILLED_BESIDE_S + workload.update_s / self.calls
        gb_s = lambda_gb_seconds(each_s, basis.gradient_memory_mb)
        each_usd = gb_s * prices.lambda_usd_per_gb_s + prices.lambda_usd_per_request
        return self.calls * each_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """Time and cost of a job's rounds."""

    wall_s: float
    usd: float


class Way(Message):
    """One way to train a job."""

    place: Place
    name: str
    learner: WhatLearns = "cpu"
    num_actors: PositiveInt
    cores: PositiveInt | None = None
    """Cores of the machine that learns and acts; None if functions act."""
    start_s: NonNegativeFloat
    """Seconds until the first round."""
    wall_s: NonNegativeFloat
    """The start included."""
    usd: NonNegativeFloat
    """The start included."""


def ways(
    workload: Workload,
    learners: Sequence[Learner],
    *,
    cores_here: int,
    actors_here: int,
    actors: Sequence[int] = ACTORS,
) -> tuple[Way, ...]:
    """Return every way to train a job: here, on servers, on a learner's cores, serverless.

    Args:
        workload: The job.
        learners: Learners of serverless jobs; the servers have the prices of the first.
        cores_here: Cores of this machine.
        actors_here: Actors that share them.
        actors: Numbers of serverless actors. A number is left out if some actor would have no step,
            or would exceed Lambda's time limit. All are left out if an evaluation episode would
            exceed it.
    """
    basis = learners[0].basis
    found = [this_machine(workload, basis, cores=cores_here, num_actors=actors_here)]
    found += [
        one_server(workload, basis, kind)
        for kind in SERVERS
        if kind in basis.prices.server_usd_per_hour
    ]
    found += [
        own_cores(workload, learner, num_actors=actors_here)
        for learner in learners
        if learner.cores
    ]
    found += [
        serverless(workload, learner, num)
        for learner in learners
        for num in actors
        if num <= workload.most_actors and not _times_out(workload, num, learner.basis)
    ]
    return tuple(found)


def this_machine(workload: Workload, basis: CostBasis, *, cores: int, num_actors: int) -> Way:
    """Return the way to train here; it costs nothing."""
    wall_s = on_one_machine_s(workload, basis, cores=cores, num_actors=num_actors)
    return Way(
        place="here",
        name="this machine",
        num_actors=num_actors,
        cores=cores,
        start_s=0.0,
        wall_s=wall_s,
        usd=0.0,
    )


def one_server(workload: Workload, basis: CostBasis, kind: str) -> Way:
    """Return the way with one rented server and an actor on each core."""
    cores = SERVER_CORES[kind]
    num_actors = min(cores, workload.most_actors)
    wall_s = BOOT_S + on_one_machine_s(workload, basis, cores=cores, num_actors=num_actors)
    return Way(
        place="server",
        name=kind,
        num_actors=num_actors,
        cores=cores,
        start_s=BOOT_S,
        wall_s=wall_s,
        usd=wall_s * basis.prices.server_usd_per_s(kind),
    )


def own_cores(workload: Workload, learner: Learner, *, num_actors: int) -> Way:
    """Return the way with a learner whose own cores run all actors."""
    basis = replace(learner.basis, provisioned=0, pinged=0)
    rounds_s = on_one_machine_s(workload, basis, cores=learner.cores, num_actors=num_actors)
    return Way(
        place="own",
        name=f"own cores, {learner.kind} learner",
        learner=learner.kind,
        num_actors=num_actors,
        cores=learner.cores,
        start_s=learner.start_s,
        wall_s=learner.start_s + rounds_s,
        usd=learner.start_s * basis.learner_usd_per_s + rounds_s * basis.usd_per_s,
    )


def serverless(workload: Workload, learner: Learner, num_actors: int) -> Way:
    """Return the way with this many serverless actors and this learner."""
    environments = workload.open_rounds * num_actors
    reused = replace(learner, basis=kept_by_reuse(learner.basis, environments))
    took = serverless_rounds(workload, reused, num_actors)
    return Way(
        place="serverless",
        name=f"serverless, {learner.kind} learner",
        learner=learner.kind,
        num_actors=num_actors,
        start_s=learner.start_s,
        wall_s=learner.start_s + took.wall_s,
        usd=learner.start_s * learner.basis.learner_usd_per_s + took.usd,
    )


def serverless_rounds(workload: Workload, learner: Learner, num_actors: int) -> Projection:
    """Return the time and cost of the rounds alone, like the ledger."""
    basis, wall_s, usd = learner.basis, 0.0, 0.0
    workload = on_functions(
        workload, num_actors, basis, cache_bytes_per_s=learner.cache_bytes_per_s
    )
    update_usd = learner.gradients_usd(workload)
    for kind in rounds(workload, num_actors, basis, learner_s=learner.update_s(workload)):
        round_s = serverless_round_s(kind.measured, basis)
        # A node can burst, but not round after round.
        round_s = max(round_s, cache_bytes(workload, kind.measured) / learner.cache_bytes_per_s)
        items = (*held_items(round_s, basis), *execution_items(kind.measured, basis))
        wall_s += kind.count * round_s
        usd += kind.count * sum(item.amount_usd for item in items)
        usd += kind.count * update_usd if kind.measured.learner_s else 0.0
    return Projection(wall_s=wall_s, usd=usd)


def on_one_machine_s(workload: Workload, basis: CostBasis, *, cores: int, num_actors: int) -> float:
    """Return the duration of the rounds on the cores of one machine."""
    unhurried = replace(basis, function_timeout_s=math.inf)
    kept = workload.model_copy(update={"replay_s": 0.0})  # its processes keep their environments
    alike = rounds(kept, num_actors, unhurried, learner_s=workload.update_s)
    return sum(kind.count * one_server_round_s(kind.measured, basis, cores) for kind in alike)


def kept_by_reuse(basis: CostBasis, environments: int) -> CostBasis:
    """Return the basis of a job whose environments are reused, and pinged when idle."""
    return replace(basis, provisioned=0, pinged=environments)


def _times_out(workload: Workload, num_actors: int, basis: CostBasis) -> bool:
    """Return whether a rollout, of a search one iteration, or an evaluation is too long."""
    core_s = [workload.with_iterations(1).fragment_s(num_actors)]
    if workload.evaluate_every:
        core_s.append(workload.episode_s)
    return max(core_s) / cpu_share(basis.memory_mb) >= basis.function_timeout_s
