"""A real HTTP server with Lambda's API as SDKs call it; it behaves as a test tells it."""

import asyncio
import base64
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from shared.contracts.environment_spec import (
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
    ObservationSpec,
)
from shared.contracts.rollouts import ActorReport
from tests.patience import ANSWER_S

HOPPER = EnvironmentSpec(
    env_id="Hopper-v5",
    observation=ObservationSpec(shape=(11,), dtype="float32"),
    action=ContinuousActionSpec(low=(-1.0,) * 3, high=(1.0,) * 3),
    max_episode_steps=1000,
    versions={"gymnasium": "1.4.0"},
)
IMAGES = EnvironmentSpec(
    env_id="ALE/Qbert-v5",
    observation=ObservationSpec(shape=(4, 84, 84), dtype="uint8", frame_stack=4),
    action=DiscreteActionSpec(n=6),
    max_episode_steps=None,
    versions={},
)
_ACCOUNT = "/2016-08-19/account-settings{slash:path}"
_INVOKE = "/2015-03-31/functions/{name}/invocations"
_PROVISIONED = "/2019-09-30/functions/{name}/provisioned-concurrency"


@dataclass(frozen=True, kw_only=True)
class Reply:
    """How the endpoint answers one invocation."""

    status: int = 200
    body: object = None
    function_error: str | None = None
    billed_ms: int | None = 100
    error_type: str | None = None
    retry_after_s: int | None = None
    cut_short: bool = False
    """Promise more bytes than are sent, then close the connection."""
    gate: threading.Event | None = None
    """Answer only once this is set."""


Task = dict[str, object]
Behaviour = Callable[[Task, int], Reply]
"""Takes the event and how often it was invoked before, under whatever lease_hash."""


def report(task: Task, **changes: object) -> Reply:
    """Answer as a healthy actor."""
    return Reply(
        body=ActorReport.model_validate(
            {
                "job_id": task["job_id"],
                "round": task["round"],
                "actor_index": task["actor_index"],
                "mode": task["mode"],
                "outcome": "stored",
                "steps": task["steps"],
                "episode_returns": [],
                "episode_lengths": [],
                "rollout_s": 0.09,
                "total_s": 0.1,
                "cold_start": False,
                "payload_bytes": 10,
                **changes,
            }
        ).model_dump(mode="json")
    )


def throttle(*, retry_after_s: int | None = None) -> Reply:
    return Reply(
        status=429,
        retry_after_s=retry_after_s,
        body={"Type": "User", "message": "Rate Exceeded.", "Reason": "x"},
        error_type="TooManyRequestsException",
    )


def waking() -> Reply:
    """Answer as Lambda does for a function whose network was taken back after idle weeks."""
    return Reply(
        status=502,
        body={"Message": "The function is inactive and its VPC connection is no longer available."},
        error_type="ResourceNotReadyException",
    )


def function_error(message: str, *, kind: str = "ValueError", billed_ms: int | None = 50) -> Reply:
    body = {"errorType": kind, "errorMessage": message}
    return Reply(body=body, function_error="Unhandled", billed_ms=billed_ms)


def _work(task: Task) -> Task:
    """Return what a task asks for."""
    return {name: value for name, value in task.items() if name != "lease_hash"}


def healthy(task: Task, nth: int) -> Reply:
    """Describe Hopper, roll out anything."""
    if task["mode"] == "describe":
        return Reply(body=HOPPER.model_dump(mode="json"))
    return report(task)


@dataclass
class LambdaEndpoint:
    """What the endpoint does and saw."""

    behave: Behaviour = healthy
    concurrency_limit: int = 1000
    provisioned: int | None = None
    provision_failure: str | None = None
    """Why environments do not start; None when all do at once."""
    url: str = ""
    events: list[Task] = field(default_factory=list)
    qualifiers: set[str | None] = field(default_factory=set)
    provision_calls: list[int] = field(default_factory=list)
    provisioned_reads: int = 0
    account_reads: int = 0
    oldest_invocation_s: float | str | None = None
    """Told as the emulator does, or as it never would; None tells nothing, like AWS."""
    account_answer: bytes | None = None
    """What is answered, with status 200, instead of the account's limits."""
    reserved_by_others: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)
    _gates: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(80))

    def reset(self) -> None:
        """Forget everything and behave well again."""
        with self.changed:
            self.behave, self.concurrency_limit, self.provisioned = healthy, 1000, None
            self.events, self.qualifiers, self.provision_calls = [], set(), []
            self.provisioned_reads, self.provision_failure = 0, None
            self.account_reads, self.reserved_by_others = 0, 0
            self.account_answer = self.oldest_invocation_s = None

    def rollouts_behave(self, behave: Behaviour) -> None:
        """Behave so when actors roll out; environments are described as ever."""
        self.behave = lambda t, n: healthy(t, n) if t["mode"] == "describe" else behave(t, n)

    def hold_rollouts(self) -> threading.Event:
        """Let no rollout end before the event is set."""
        gate = threading.Event()
        self.rollouts_behave(lambda task, nth: replace(healthy(task, nth), gate=gate))
        return gate

    def rollouts(self, mode: str = "sample") -> list[tuple[object, ...]]:
        """Return (job, round, attempt, actor) of every rollout invoked, in order of arrival."""
        with self.changed:
            return [
                (e["job_id"], e["round"], e["attempt"], e["actor_index"])
                for e in self.events
                if e["mode"] == mode
            ]

    def wait_events(self, mode: str, count: int, *, timeout_s: float = 10.0) -> None:
        """Wait until that many invocations of a mode have arrived."""
        with self.changed:
            arrived = self.changed.wait_for(
                lambda: sum(e["mode"] == mode for e in self.events) >= count, timeout_s
            )
        assert arrived, f"{count} {mode} events expected, got {self.rollouts(mode)}"

    def wait_seen(self, *, provisioned_reads: int) -> None:
        """Wait until provisioned concurrency was asked after so many times."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.provisioned_reads >= provisioned_reads, 10)

    def wait_account_reads(self, more: int) -> None:
        """Wait until the account's limits were asked for so many more times."""
        with self.changed:
            wanted = self.account_reads + more
            assert self.changed.wait_for(lambda: self.account_reads >= wanted, 10)

    async def invoke(self, request: Request) -> Response:
        task: Task = json.loads(await request.body())
        with self.changed:
            nth = sum(_work(event) == _work(task) for event in self.events)
            self.events.append(task)
            self.qualifiers.add(request.query_params.get("Qualifier"))
            self.changed.notify_all()
        reply = self.behave(task, nth)
        if reply.gate is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._gates, reply.gate.wait, 30)
        return _CutShort() if reply.cut_short else _response(reply)

    async def account(self, request: Request) -> Response:
        with self.changed:
            self.account_reads += 1
            self.changed.notify_all()
        if self.account_answer is not None:
            return Response(self.account_answer)
        limit = {"ConcurrentExecutions": self.concurrency_limit}
        if self.reserved_by_others:
            unreserved = self.concurrency_limit - self.reserved_by_others
            limit["UnreservedConcurrentExecutions"] = unreserved
        oldest = {"X-Nitro-Oldest-Invocation-S": f"{self.oldest_invocation_s}"}
        headers = None if self.oldest_invocation_s is None else oldest
        return JSONResponse({"AccountLimit": limit, "AccountUsage": {}}, headers=headers)

    async def provisioned_concurrency(self, request: Request) -> Response:
        if request.method == "PUT":
            body = await request.json()
            return self._set_provisioned(body["ProvisionedConcurrentExecutions"])
        if request.method == "DELETE":
            self._set_provisioned(0)
            return Response(status_code=204)
        with self.changed:
            self.provisioned_reads += 1
            self.changed.notify_all()
        if not self.provisioned:
            return _response(
                Reply(
                    status=404,
                    body={"Type": "User", "message": "none"},
                    error_type="ProvisionedConcurrencyConfigNotFoundException",
                )
            )
        return JSONResponse(self._provisioned_config())

    def _set_provisioned(self, count: int) -> Response:
        with self.changed:
            self.provisioned = count
            self.provision_calls.append(count)
            self.changed.notify_all()
        return JSONResponse(self._provisioned_config(), status_code=202)

    def _provisioned_config(self) -> dict[str, object]:
        failed = {"Status": "FAILED", "StatusReason": self.provision_failure}
        return {
            "RequestedProvisionedConcurrentExecutions": self.provisioned,
            "AvailableProvisionedConcurrentExecutions": (
                0 if self.provision_failure else self.provisioned
            ),
            **(failed if self.provision_failure else {"Status": "READY"}),
        }

    def close(self) -> None:
        self._gates.shutdown()


def _response(reply: Reply) -> Response:
    headers = {"x-amzn-RequestId": "test"}
    if reply.error_type is not None:
        headers["x-amzn-ErrorType"] = reply.error_type
    if reply.retry_after_s is not None:
        headers["Retry-After"] = str(reply.retry_after_s)
    if reply.function_error is not None:
        headers["X-Amz-Function-Error"] = reply.function_error
    if reply.billed_ms is not None:
        log = f"REPORT RequestId: test\tDuration: 1.00 ms\tBilled Duration: {reply.billed_ms} ms\t"
        headers["X-Amz-Log-Result"] = base64.b64encode(log.encode()).decode()
    return Response(json.dumps(reply.body), status_code=reply.status, headers=headers)


class _CutShort(Response):
    """Breaks the connection in the middle of an answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{", "more_body": False})


@contextmanager
def lambda_endpoint() -> Iterator[LambdaEndpoint]:
    """Run an endpoint on a free port."""
    endpoint = LambdaEndpoint()
    app = Starlette(
        routes=[
            Route(_INVOKE, endpoint.invoke, methods=["POST"]),
            Route(_ACCOUNT, endpoint.account, methods=["GET"]),
            Route(
                _PROVISIONED,
                endpoint.provisioned_concurrency,
                methods=["GET", "PUT", "DELETE"],
            ),
        ]
    )
    with serve(app) as url:
        endpoint.url = url
        try:
            yield endpoint
        finally:
            endpoint.close()


@contextmanager
def serve(
    app: Callable[..., object],
    *,
    http: type[asyncio.Protocol] | str = "httptools",
    drain_s: int = 5,
) -> Iterator[str]:
    """Run an ASGI application with uvicorn on a free port; yield its address.

    At the end, answers have `drain_s` to be complete.
    """
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        http=http,
        log_level="critical",
        timeout_graceful_shutdown=drain_s,
    )
    server = _ThreadedServer(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        assert server.up.wait(10), "the server did not start"
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.should_exit = True
        # The graceful end of requests and launches alone may take some 15 s.
        thread.join(ANSWER_S)
        assert not thread.is_alive(), "the server did not end"


class _ThreadedServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()
        self.port = 0

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup()
        self.port = self.servers[0].sockets[0].getsockname()[1]
        self.up.set()
