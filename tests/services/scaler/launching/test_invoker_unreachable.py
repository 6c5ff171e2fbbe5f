"""Invocations of an endpoint that is away."""

import asyncio
import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from nitro.local.ports import free_ports
from services.scaler.launching.invoker import ActorInvoker, Awaited, RetryRule
from services.scaler.launching.lambda_function import LambdaFunction
from services.scaler.launching.room import Room
from services.scaler.launching.tasks import ROLLOUTS
from services.scaler.settings import Settings
from tests.services.scaler.lambda_endpoint import LambdaEndpoint, function_error, report
from tests.services.scaler.launching.running_invoker import Running, Sink, task
from tests.services.scaler.services_without_network import Inline


class Front:
    """Lambda's address: refuses connections until it is opened on the endpoint behind it."""

    def __init__(self, lambdas: LambdaEndpoint) -> None:
        self._behind = ("127.0.0.1", int(lambdas.url.rpartition(":")[2]))
        (self.port,) = free_ports(1)

    def open(self, stack: ExitStack) -> None:
        """Let connections through until the stack is left."""
        server = stack.enter_context(_Forwarding(self.port, self._behind))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)


class _Forwarding(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, behind: tuple[str, int]) -> None:
        self.behind = behind
        super().__init__(("127.0.0.1", port), _Forward)


class _Forward(socketserver.BaseRequestHandler):
    server: _Forwarding

    def handle(self) -> None:
        with socket.create_connection(self.server.behind) as behind:
            back = threading.Thread(target=_copy, args=(behind, self.request), daemon=True)
            back.start()
            _copy(self.request, behind)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


class Retries:
    """What was told of tries that are followed by another."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self._changed = threading.Condition()

    def __call__(self, kind: str, why: str) -> None:
        with self._changed:
            self.told.append((kind, why))
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.told) >= count, 10)


@pytest.fixture
def front(lambdas: LambdaEndpoint) -> Front:
    return Front(lambdas)


@pytest.fixture
def behind_front(front: Front, loop: asyncio.AbstractEventLoop) -> Iterator[Running]:
    settings = Settings(auth="disabled", lambda_endpoint_url=f"http://127.0.0.1:{front.port}")
    function = LambdaFunction(settings, Inline())
    rule = RetryRule(throttled_s=0.001, first_pause_s=0.001, timeout_s=60.0)
    invoker = Running(loop, ActorInvoker(function, rule, ROLLOUTS, Room(most=2), seed=0))
    yield invoker
    assert invoker.close(wait_s=10)
    loop.call_soon_threadsafe(function.close)


def test_an_endpoint_that_is_away_is_tried_until_it_is_back_and_counts_as_no_execution(
    front: Front, behind_front: Running, lambdas: LambdaEndpoint
) -> None:
    lambdas.behave = lambda t, nth: report(t) if nth else function_error("boom")
    sink, retries = Sink(), Retries()
    with ExitStack() as stack:
        behind_front.submit([task()], sink, Awaited(on_retry=retries))
        retries.wait(5)
        assert lambdas.events == []
        front.open(stack)
        (outcome,) = sink.wait(1)
    assert outcome.report is not None
    assert (outcome.requests, outcome.billed_s) == (2, (0.05, 0.1))  # both executions are left
    kinds = [kind for kind, _ in retries.told]
    assert kinds == ["unreachable"] * (len(kinds) - 1) + ["failed"]
    assert "UnreachableError" in retries.told[0][1]


def test_an_endpoint_that_stays_away_fails_the_task_at_its_deadline_at_no_cost(
    behind_front: Running,
) -> None:
    sink, retries = Sink(), Retries()
    until = time.perf_counter() + 2.0
    behind_front.submit([task()], sink, Awaited(until=until, on_retry=retries))
    (outcome,) = sink.wait(1)
    assert (outcome.report, outcome.requests, outcome.billed_s) == (None, 0, ())
    assert "UnreachableError" in outcome.reason
    assert len(retries.told) > 2  # both executions would have been used up


def test_an_endpoint_that_is_away_is_not_tried_for_a_task_that_nobody_wants(
    behind_front: Running,
) -> None:
    sink, retries, unwanted = Sink(), Retries(), threading.Event()
    awaited = Awaited(wanted=lambda: not unwanted.is_set(), on_retry=retries)
    behind_front.submit([task()], sink, awaited)
    retries.wait(2)
    unwanted.set()
    (outcome,) = sink.wait(1)
    assert (outcome.report, outcome.requests) == (None, 0)


def test_a_task_that_a_closing_invoker_could_not_start_has_vanished(
    behind_front: Running,
) -> None:
    sink, retries = Sink(), Retries()
    behind_front.submit([task()], sink, Awaited(on_retry=retries))
    retries.wait(2)
    assert behind_front.close(wait_s=10)
    (outcome,) = sink.outcomes
    assert (outcome.report, outcome.requests, outcome.failure) == (None, 0, "vanished")
