"""A held lease against a scaler that answers over HTTP by script."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count

import pytest

from services.learner.scaler.client import ScalerClient
from services.learner.scaler.held_lease import HeldLease
from tests.services.learner.scripted_scaler import REFUSED, Answer, ScriptedScaler, job, serving

_JOBS = count()
_STOP: Answer = (200, {"expires_in_s": 30.0, "stop": "user"})


@pytest.fixture
def scaler(cache_url: str) -> Iterator[ScriptedScaler]:
    with serving(job(f"held-lease-{next(_JOBS)}"), cache_url, rounds=1) as running:
        yield running


@pytest.fixture
def hold(scaler: ScriptedScaler) -> Iterator[Callable[[threading.Event], HeldLease]]:
    with ExitStack() as stack:
        client = stack.enter_context(ScalerClient(scaler.url, None, patience_s=0.2))
        yield lambda shutdown: stack.enter_context(HeldLease(scaler.lease(), client, shutdown))


Hold = Callable[[threading.Event], HeldLease]


def _next_heartbeats(scaler: ScriptedScaler, num: int = 2) -> None:
    """Wait until the answer before the last has been taken in for certain."""
    for _ in range(num):
        scaler.heard.clear()
        assert scaler.heard.wait(20)


def test_it_is_kept_alive_while_nothing_happens(scaler: ScriptedScaler, hold: Hold) -> None:
    held = hold(threading.Event())
    _next_heartbeats(scaler, 3)
    assert (held.stop, held.lost, held.should_leave, held.must_leave) == (None, False, False, False)


def test_a_stop_is_heard_and_not_forgotten(scaler: ScriptedScaler, hold: Hold) -> None:
    held = hold(threading.Event())
    alive, scaler.heartbeat = scaler.heartbeat, _STOP
    _next_heartbeats(scaler)
    scaler.heartbeat = alive
    _next_heartbeats(scaler)
    assert (held.stop, held.should_leave) == ("user", True)
    # The job ends here: nobody else goes on with it.
    assert not held.must_leave


def test_a_lost_lease_is_noticed_and_no_longer_renewed(scaler: ScriptedScaler, hold: Hold) -> None:
    scaler.heartbeat = REFUSED
    held = hold(threading.Event())
    assert scaler.heard.wait(20)
    held.__exit__(None, None, None)
    assert (held.lost, held.should_leave, held.must_leave) == (True, True, True)


def test_a_scaler_that_is_away_does_not_cost_the_lease(scaler: ScriptedScaler, hold: Hold) -> None:
    alive, scaler.heartbeat = scaler.heartbeat, (503, None)
    held = hold(threading.Event())
    _next_heartbeats(scaler)
    assert not held.should_leave
    scaler.heartbeat = alive
    _next_heartbeats(scaler)
    assert not held.should_leave


def test_a_shutdown_is_a_reason_to_leave_but_not_to_stop_the_job(
    scaler: ScriptedScaler, hold: Hold
) -> None:
    shutdown = threading.Event()
    held = hold(shutdown)
    assert not held.interrupted
    shutdown.set()
    assert (held.interrupted, held.must_leave, held.stop, held.lost) == (True, True, None, False)


def test_leaving_the_context_ends_the_heartbeats(scaler: ScriptedScaler, cache_url: str) -> None:
    before = threading.active_count()
    with (
        ScalerClient(scaler.url, None, patience_s=0.2) as client,
        HeldLease(scaler.lease(), client, threading.Event()),
    ):
        _next_heartbeats(scaler)
    assert "heartbeat" not in {thread.name for thread in threading.enumerate()}
    assert threading.active_count() <= before + 1
