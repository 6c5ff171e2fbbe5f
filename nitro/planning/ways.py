"""The ways to train a job, each with the time and the money it would take.

The model is the ledger's: `shared.money` prices rounds here that are foretold in the same way as it
prices those that were. What a bill leaves out, the start of the learner or of the server, is in.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from nitro.planning.workload import Workload, cache_bytes, rounds
from shared.contracts.learner_kind import LearnerKind
from shared.contracts.message import Message, NonNegativeFloat, PositiveInt
from shared.money.costs import CostBasis, cpu_share, lambda_gb_seconds
from shared.money.one_server import BOOT_S, SERVER_CORES, one_server_round_s
from shared.money.round_costs import execution_items, held_items, serverless_round_s

Place = Literal["here", "server", "own", "serverless"]
"""`own`: on the cores of a learner that exists while the job runs, without functions."""
WhatLearns = LearnerKind | Literal["functions"]
GRADIENT_CALL_S = 0.04
"""What a call of a learner function takes beside its gradient: asking, invoking, weights and slice,
and the way back. As in recorded runs on busy cores; on AWS nobody has measured it."""
_BILLED_BESIDE_S = 0.01
"""The part of that in which the function runs."""
ACTORS = (8, 16, 64, 256, 1000)
"""Numbers of serverless actors that are compared."""
SERVERS = ("c7i.xlarge", "c7i.4xlarge", "c7i.16xlarge")
"""Servers that are: of 4, 16 and 64 cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """What a serverless job's learner is billed by, and how it starts."""

    kind: WhatLearns
    basis: CostBasis
    start_s: float
    """From a job's submission to its first round."""
    cores: int = 0
    """Of its machine, for actors of its own; 0 where it has none."""
    calls: int = 0
    """Gradients of an update that functions compute."""
    functions: int = 1
    """How many compute at a time."""
    cache_bytes_per_s: float = math.inf
    """What the network of the cache's node sustains."""

    def update_s(self, workload: Workload) -> float:
        """Return the learner's work after a round."""
        if self.kind == "gpu":
            return workload.gpu_update_s
        if not self.calls:
            return workload.update_s
        each_s = GRADIENT_CALL_S + workload.update_s / self.calls
        return math.ceil(self.calls / self.functions) * each_s

    def gradients_usd(self, workload: Workload) -> float:
        """Return what the functions of one update cost."""
        if not self.calls:
            return 0.0
        basis, prices = self.basis, self.basis.prices
        each_s = _BILLED_BESIDE_S + workload.update_s / self.calls
        gb_s = lambda_gb_seconds(each_s, basis.gradient_memory_mb)
        each_usd = gb_s * prices.lambda_usd_per_gb_s + prices.lambda_usd_per_request
        return self.calls * each_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What a job's rounds take and cost."""

    wall_s: float
    usd: float


class Way(Message):
    """One way to train a job."""

    place: Place
    name: str
    learner: WhatLearns = "cpu"
    num_actors: PositiveInt
    cores: PositiveInt | None = None
    """Of the machine that learns and acts; None where functions act."""
    start_s: NonNegativeFloat
    """Until the first round."""
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
    """Return every way there is to train a job: here, on servers, on a learner's cores, serverless.

    Args:
        workload: The job.
        learners: What serverless jobs can learn on; the servers have the prices of the first.
        cores_here: Cores of this machine.
        actors_here: Actors that share them.
        actors: Numbers of serverless actors; one that has no step for each, or that Lambda would
            not give the time for theirs, is left out. All are where it would not give the time for
            an evaluation episode.
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
        if workload.steps_of(num) and not _times_out(workload, num, learner.basis)
    ]
    return tuple(found)


def this_machine(workload: Workload, basis: CostBasis, *, cores: int, num_actors: int) -> Way:
    """Return what training here takes; it costs nothing."""
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
    """Return what one rented server takes, an actor on each of its cores."""
    cores = SERVER_CORES[kind]
    num_actors = min(cores, workload.samples_per_round // workload.envs_per_actor)
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
    """Return what a learner takes whose own cores do all that functions would."""
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
    """Return what so many serverless actors take, beside a learner of some kind."""
    reused = replace(learner, basis=kept_by_reuse(learner.basis, num_actors))
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
    """Return what the rounds alone take and cost: what the ledger will say."""
    basis, wall_s, usd = learner.basis, 0.0, 0.0
    update_usd = learner.gradients_usd(workload)
    for kind in rounds(workload, num_actors, basis, learner_s=learner.update_s(workload)):
        round_s = serverless_round_s(kind.measured, basis)
        # A node may send faster for a while, but not in round after round.
        round_s = max(round_s, cache_bytes(workload, kind.measured) / learner.cache_bytes_per_s)
        items = (*held_items(round_s, basis), *execution_items(kind.measured, basis))
        wall_s += kind.count * round_s
        usd += kind.count * sum(item.amount_usd for item in items)
        usd += kind.count * update_usd if kind.measured.learner_s else 0.0
    return Projection(wall_s=wall_s, usd=usd)


def on_one_machine_s(workload: Workload, basis: CostBasis, *, cores: int, num_actors: int) -> float:
    """Return how long the rounds take on the cores of one machine."""
    unhurried = replace(basis, function_timeout_s=math.inf)
    kept = workload.model_copy(update={"replay_s": 0.0})  # its processes keep their environments
    alike = rounds(kept, num_actors, unhurried, learner_s=workload.update_s)
    return sum(kind.count * one_server_round_s(kind.measured, basis, cores) for kind in alike)


def kept_by_reuse(basis: CostBasis, num_actors: int) -> CostBasis:
    """Return the basis of a job whose environments are reused, and pinged when they idle."""
    return replace(basis, provisioned=0, pinged=num_actors)


def _times_out(workload: Workload, num_actors: int, basis: CostBasis) -> bool:
    """Return whether Lambda would end an actor's share of a round, or an evaluation episode."""
    core_s = [workload.fragment_s(num_actors)]
    if workload.evaluate_every:
        core_s.append(workload.episode_s)
    return max(core_s) / cpu_share(basis.memory_mb) >= basis.function_timeout_s
