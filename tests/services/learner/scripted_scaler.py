"""A scaler that answers over HTTP by script, and delivers what its actors would have."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from services.learner.record.checkpoint import CheckpointStore
from services.learner.record.run_record import RunRecord
from services.learner.rounds.job_rounds import JobRounds
from services.learner.rounds.streams import Streams
from services.learner.scaler.client import ScalerClient
from services.learner.scaler.held_lease import HeldLease
from shared.artifacts.local import LocalArtifacts
from shared.cache.arrivals import FailureKind, Mode
from shared.cache.client import TrajectoryCache
from shared.contracts.episode_rules import EvaluationRule
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, JobProgress, StopReason
from shared.contracts.leases import FinishRequest, Lease, LeaseRequest
from shared.contracts.message import Message
from shared.contracts.rounds import RoundPlan, RoundRequest
from tests.services.learner.made_rounds import (
    ENVIRONMENT,
    STEPS,
    deliver,
    deliver_episode,
    deliver_going_on,
    plan,
)

Answer = tuple[int, object]
Launch = Callable[["ScriptedScaler", RoundPlan, RoundRequest], None]

OTHER_POLICY: Answer = (422, {"title": "Unprocessable", "status": 422, "detail": "policy_version"})
REFUSED: Answer = (409, {"title": "Conflict", "status": 409, "detail": "out of order"})
UNAVAILABLE: Answer = (503, {"title": "Service Unavailable", "status": 503, "detail": "restarting"})
FINISHED_AT = 1000.0


def job(job_id: str, **changes: object) -> Job:
    """A job on the toy environment, small enough to train in milliseconds."""
    spec = {
        "env_id": ENVIRONMENT.env_id,
        "steps_per_actor": STEPS,
        "hyperparameters": {"hidden_sizes": [8], "num_epochs": 2, "minibatch_size": 8},
        "evaluation": EvaluationRule(episodes=2),
        "seed": 3,
        **changes,
    }
    return Job(
        job_id=job_id,
        spec=JobSpec.model_validate(spec),
        environment=ENVIRONMENT,
        status="running",
        created_at=0.0,
    )


def fail_actors(
    scaler: "ScriptedScaler",
    made: RoundPlan,
    *indices: int,
    mode: Mode = "sample",
    reason: str = "crashed",
    kind: FailureKind = "lost",
) -> None:
    """Announce that actors, or evaluation episodes, of a round have failed."""
    for index in indices:
        scaler.cache.announce_failure(
            made.job_id,
            made.round,
            mode=mode,
            actor_index=index,
            attempt=made.attempt,
            reason=reason,
            kind=kind,
        )


def deliver_all(scaler: "ScriptedScaler", made: RoundPlan, request: RoundRequest) -> None:
    """Have every actor and every evaluation episode of a plan succeed."""
    indices = range(made.num_actors) if request.missing is None else request.missing
    identity = {"round_index": made.round, "policy_version": made.policy_version}
    for index in indices:
        if scaler.job.continues_episodes:
            deliver_going_on(scaler.cache, made.job_id, index, **identity)
        else:
            deliver(scaler.cache, made.job_id, index, **identity)
    for index in range(made.num_evaluations):
        deliver_episode(scaler.cache, made.job_id, index, **identity)


class ScriptedScaler(ThreadingHTTPServer):
    """Offers one job, plans its rounds, and remembers all it was told."""

    daemon_threads = True

    def __init__(self, made: Job, cache: TrajectoryCache, *, rounds: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.job = made
        self.cache = cache
        self.rounds = rounds
        self.launch: Launch = deliver_all
        self.changes: dict[str, object] = {}
        """Fields of every plan that differ from the usual."""
        self.refusals: dict[tuple[int, int], Answer | StopReason] = {}
        """What (round, attempt) is answered instead of a plan, or why it ends the job."""
        self.ends: dict[int, StopReason] = {}
        """Rounds whose plan said why the job ends."""
        self.end: Answer | None = None
        """What a learner's last word is answered instead of the job."""
        self.final_bill: Answer | None = None
        """What is answered instead of the bill once the job has ended."""
        self.heartbeat: Answer = (200, {"expires_in_s": 30.0, "stop": None})
        self.heard = threading.Event()
        """Set by every heartbeat."""
        self.on_finish: Callable[[], None] = lambda: None
        self.on_asked: Callable[[int, RoundRequest], None] = lambda _number, _request: None
        self.asked: list[tuple[int, RoundRequest]] = []
        self.finished: list[FinishRequest] = []
        self.given_up: list[str] = []
        self.num_leases = 0
        self.taken = False
        """Whether the job is another learner's by now."""
        self.leased: list[LeaseRequest] = []
        """Every request for work."""
        self.idle = threading.Event()
        """Set when a learner asks for work and there is none."""
        self._plans: dict[tuple[int, int], RoundPlan] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def lease(self) -> Lease:
        """The right to train the job, under a new name."""
        self.num_leases += 1
        return Lease(
            lease_id=f"lease-{self.num_leases}",
            job=self.job,
            expires_in_s=30.0,
            heartbeat_every_s=0.02,
        )

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """Answer one request of the learner."""
        match method, path.partition("?")[0].strip("/").split("/")[1:]:
            case "POST", ["leases"]:
                self.leased.append(LeaseRequest.model_validate_json(body))
                if not (self.finished or self.given_up or self.taken):
                    return 200, _json(self.lease())
                self.idle.set()
                return 204, None
            case "PUT", ["leases", _]:
                self.heard.set()
                return self.heartbeat
            case "DELETE", ["leases", lease_id]:
                self.given_up.append(lease_id)
                self.on_finish()
                return 204, None
            case "POST", ["jobs", _, "rounds", number]:
                return self._round(int(number), RoundRequest.model_validate_json(body))
            case "POST", ["jobs", _, "finish"]:
                self.finished.append(FinishRequest.model_validate_json(body))
                self.on_finish()
                return self.end or (200, _json(self._ended()))
            case "GET", ["jobs", job_id, *rest] if job_id == self.job.job_id:
                return self._shown(bill=bool(rest))
        return 404, {"title": "Not Found", "status": 404, "detail": path}

    def _shown(self, *, bill: bool) -> Answer:
        if bill:
            return (self.finished and self.final_bill) or (200, _bill(self.job.job_id))
        return 200, _json(self._ended() if self.finished else self.job)

    def plan_afresh(self) -> None:
        """Forget all plans and what came of them, as when the job had ended and was resumed."""
        rounds = {number for number, _ in self._plans}
        self.cache.forget_rounds(self.job.job_id, rounds)
        self._plans.clear()
        self.ends.clear()

    def _ended(self) -> Job:
        """The job after the learner's last word, with what only a scaler knows."""
        last = self.finished[-1]
        return self.job.model_copy(
            update={
                "status": last.status,
                "stop_reason": last.stop_reason,
                "error": last.error,
                "finished_at": FINISHED_AT,
                "progress": JobProgress(rounds=self.rounds, last_return=0.5),
                "spent_usd": 0.25,
            }
        )

    def _round(self, number: int, request: RoundRequest) -> Answer:
        self.asked.append((number, request))
        self.on_asked(number, request)
        key = (number, request.attempt)
        refusal = self.refusals.get(key)
        if isinstance(refusal, tuple):
            return refusal
        if key in self._plans:
            if self._plans[key].policy_version != request.policy_version:
                return OTHER_POLICY
            return 200, _json(self._plans[key].model_copy(update={"age_s": 0.5}))
        made = plan(self.job.job_id, round_index=number, attempt=request.attempt)
        made = made.model_copy(update={"policy_version": request.policy_version, **self.changes})
        over: StopReason | None = "max_rounds" if number >= self.rounds else None
        stop = refusal or self.ends.get(number - 1) or over
        if stop is not None:
            self.ends[number] = stop
            last = number - min(self.ends) == self.job.spec.open_rounds - 1
            ended = {"stop": stop, "num_actors": 0, "quorum": 0}
            made = made.model_copy(update={**ended, "num_evaluations": 2 if last else 0})
        self._plans[key] = made
        self.launch(self, made, request)
        return 200, _json(made)


@contextmanager
def serving(made: Job, cache_url: str, *, rounds: int) -> Iterator[ScriptedScaler]:
    """Run a scripted scaler with a cache connection of its own."""
    with (
        TrajectoryCache(cache_url) as cache,
        ScriptedScaler(made, cache, rounds=rounds) as scaler,
    ):
        thread = threading.Thread(target=scaler.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield scaler
        finally:
            scaler.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedScaler
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # header and body in one packet: in two, the second waits for a delayed ACK

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, content = self.server.answer(self.command, self.path, body)
        data = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - names set by http.server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep the test's output clean."""


def _json(message: Message) -> object:
    return message.model_dump(mode="json")


def _bill(job_id: str) -> dict[str, object]:
    return {
        "job_id": job_id,
        "settled_usd": 0.0,
        "reserved_usd": 0.0,
        "by_item": {},
        "lines": [],
        "price_table": "none",
        "projected_wall_s": 0.0,
        "assumptions": [],
    }


def wired(
    scaler: ScriptedScaler,
    stack: ExitStack,
    artifacts: LocalArtifacts,
    cache: TrajectoryCache,
    shutdown: threading.Event,
    *,
    next_round: int = 0,
    max_reopenings: int = 0,
) -> dict[str, Any]:
    """Return what a session of rounds works with that does not depend on what it learns."""
    client, heartbeats = (
        stack.enter_context(ScalerClient(scaler.url, None, patience_s=5.0)) for _ in range(2)
    )
    record = RunRecord(artifacts, scaler.job.job_id)
    record.begin(scaler.job, next_round=next_round, bill=(), device="cpu")
    return {
        "rounds": JobRounds(
            job=scaler.job,
            scaler=client,
            cache=cache,
            lease=stack.enter_context(HeldLease(scaler.lease(), heartbeats, shutdown)),
            streams=Streams(envs_per_actor=1),
            max_reopenings=max_reopenings,
        ),
        "checkpoints": CheckpointStore(artifacts, scaler.job.job_id, keep=3),
        "record": record,
    }
