"""Iterations of ARS with 460 and 1,000 actors that only answer: what is left beside the episodes.

An actor fetches the policy and answers with the sums of one episode of Humanoid's form, which
nobody played. An iteration lasts from publishing the policy to the last answer. The learner's
update comes after it. The bytes are those that the cache counts. All parts share this machine's
cores, so on AWS the actors' share of the time is gone.
"""

import os
import time
from dataclasses import dataclass

import redis
import torch

from benchmarks.actors.trajectory import HUMANOID
from benchmarks.claims.many_actors import Fleet, pushing_fleet, series
from benchmarks.measurement import Effort, progress
from benchmarks.records.result import Row
from learning.algorithms.algorithm import Algorithm, learn_round
from learning.algorithms.registry import build_algorithm
from services.learner.rounds.collector import RoundCollector
from shared.contracts.episode_rules import EvaluationRule
from shared.contracts.job_spec import JobSpec, StopRule
from shared.contracts.leases import Lease
from shared.contracts.scaling_spec import ActorRange, FixedScaling
from shared.trajectory import codec
from shared.trajectory.rollout_tasks import search_task

TITLE = "Iterations of ARS whose actors only answer"
_MB = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One iteration."""

    answers_s: float
    """From the policy's publication to the last answer."""
    update_s: float
    """The learner's step."""
    cpu_s: float
    """Processor time of all parts until the last answer."""
    into_cache: int
    """Bytes that the cache received."""
    out_of_cache: int
    """Bytes that it sent."""


def iterations(fleet: Fleet, num_actors: int, count: int) -> list[Iteration]:
    """Run so many iterations with an episode an actor, after one to warm up."""
    spec = JobSpec(
        env_id=HUMANOID.env_id,
        algorithm="ars",
        hyperparameters={"directions": num_actors // 2},
        actors=ActorRange(min=num_actors, max=num_actors, own=0),
        scaling=FixedScaling(policy="fixed", num_actors=num_actors),
        stop=StopRule(max_rounds=count + 1, budget_usd=1e6),
        evaluation=EvaluationRule(every_rounds=0),
    )
    lease = fleet.begin(spec)
    algorithm = build_algorithm(lease.job, device=torch.device("cpu"))
    made = [_iteration(fleet, lease, algorithm, index) for index in range(count + 1)]
    fleet.end(lease)
    return made[1:]


def _iteration(fleet: Fleet, lease: Lease, algorithm: Algorithm, index: int) -> Iteration:
    job_id = lease.job.job_id
    fleet.http.put(f"/v1/leases/{lease.lease_id}").raise_for_status()
    before, cpu_s, start = _cache_bytes(fleet), sum(fleet.cpu_s().values()), time.perf_counter()
    fleet.cache.publish_policy(job_id, index, codec.encode(*algorithm.policy_payload()))
    plan = fleet.plan(lease, index)
    collector = RoundCollector(
        fleet.cache,
        plan,
        HUMANOID,
        steps_per_actor=1,
        envs_per_actor=1,
        should_leave=lambda: False,
        must_leave=lambda: False,
        search=search_task(lease.job, plan.num_actors),
    )
    answers = collector.trajectories()
    answered = time.perf_counter()
    cpu_s = sum(fleet.cpu_s().values()) - cpu_s
    learn_round(algorithm, answers)
    update_s = time.perf_counter() - answered
    if collector.missing:
        raise RuntimeError(f"iteration {index}: {'; '.join(collector.failures)}")
    collector.close()
    fleet.landed(job_id, index)
    fleet.cache.free_round(job_id, index)
    after = _cache_bytes(fleet)
    return Iteration(
        answers_s=answered - start,
        update_s=update_s,
        cpu_s=cpu_s,
        into_cache=after[0] - before[0],
        out_of_cache=after[1] - before[1],
    )


def _cache_bytes(fleet: Fleet) -> tuple[int, int]:
    with redis.Redis(host=fleet.server.host, port=fleet.server.port) as client:
        stats = client.info("stats")
    return int(stats["total_net_input_bytes"]), int(stats["total_net_output_bytes"])


def measure(effort: Effort) -> list[Row]:
    """Run iterations of every size."""
    progress("starting the local system")
    cores = os.cpu_count() or 1
    rows = []
    with pushing_fleet(processes=cores, actor="answering_actor") as fleet:
        for size in (8, 16) if effort.quick else (460, 1000):
            progress(f"iterations of {size:,} actors")
            made = iterations(fleet, size, effort.of(10))
            rows += _rows(size, made, cores)
    return rows


def _rows(size: int, made: list[Iteration], cores: int) -> list[Row]:
    of = f"of {size:,} actors"
    return [
        Row(
            what=f"an iteration {of} to its last answer, beside its processor time",
            ours=series("iteration", "s", [each.answers_s for each in made]),
            peer=series(
                f"least possible on {cores} cores", "s", [each.cpu_s / cores for each in made]
            ),
        ),
        Row(
            what=f"the update of an iteration {of}",
            ours=series("nitro", "s", [each.update_s for each in made]),
        ),
        Row(
            what=f"bytes into the cache, an iteration {of}",
            ours=series("nitro", "MB", [each.into_cache / _MB for each in made]),
        ),
        Row(
            what=f"bytes out of the cache, an iteration {of}",
            ours=series("nitro", "MB", [each.out_of_cache / _MB for each in made]),
        ),
    ]
