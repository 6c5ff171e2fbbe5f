"""Invocations over real HTTP against a server that speaks Lambda's API."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NoReturn

import pytest

from services.scaler.launching.execution import Execution
from services.scaler.launching.invoker import Awaited
from services.scaler.launching.lambda_function import LambdaFunction
from shared.contracts.rollouts import RolloutTask
from tests.services.scaler.lambda_endpoint import (
    LambdaEndpoint,
    Reply,
    Task,
    function_error,
    report,
    throttle,
    waking,
)
from tests.services.scaler.launching.running_invoker import (
    Running,
    Sink,
    StartInvoker,
    run_one,
    task,
)

RETRIES = 3


def test_every_task_is_invoked_once_on_the_alias_and_reports(
    invoker: Running, lambdas: LambdaEndpoint
) -> None:
    sink = Sink()
    invoker.submit([task(i) for i in range(20)], sink)
    outcomes = sink.wait(20)
    assert [o.task.actor_index for o in outcomes] == list(range(20))
    assert all(o.report is not None and o.requests == 1 for o in outcomes)
    assert {o.billed_s for o in outcomes} == {(0.1,)}
    assert len(lambdas.rollouts()) == 20
    assert lambdas.qualifiers == {"live"}


BROKEN = Reply(cut_short=True, billed_ms=None)
REFUSED = Reply(
    status=404,
    body={"Type": "User", "message": "Function not found"},
    error_type="ResourceNotFoundException",
)


@pytest.mark.parametrize(
    ("behave", "wanted", "reason"),
    [
        pytest.param(
            lambda t, nth: report(t) if nth else function_error("boom"),
            (True, 2, 2, (0.05, 0.1), 0),
            "",
            id="an actor that failed is issued once more",
        ),
        pytest.param(
            lambda t, nth: function_error("the simulator broke"),
            (False, 2, 2, (0.05, 0.05), 0),
            "Unhandled: ValueError: the simulator broke",
            id="one that fails twice has failed for good, with its reason",
        ),
        pytest.param(
            lambda t, nth: report(t) if nth else BROKEN,
            (True, 2, 2, (60.0, 0.1), 0),
            "",
            id="a connection that breaks is billed to the time-out, and the actor issued again",
        ),
        pytest.param(
            lambda t, nth: throttle() if nth < RETRIES else report(t),
            (True, RETRIES + 1, 1, (0.1,), RETRIES),
            "",
            id="throttles are waited out and counted, but not billed",
        ),
        pytest.param(
            lambda t, nth: REFUSED,
            (False, 1, 0, (), 0),
            "Function not found",
            id="a request that Lambda refuses is not repeated",
        ),
        pytest.param(
            lambda t, nth: report(t, actor_index=5),
            (False, 2, 2, (0.1, 0.1), 0),
            "not ('job', 1, 0, 'sample')",
            id="a reply about another actor is not believed",
        ),
        pytest.param(
            lambda t, nth: Reply(body={"hello": 1}),
            (False, 2, 2, (0.1, 0.1), 0),
            "no report",
            id="a reply that is no report says so",
        ),
        pytest.param(
            lambda t, nth: Reply(body=report(t, total_s=0.25).body, billed_ms=None),
            (True, 1, 1, (0.25,), 0),
            "",
            id="without Lambda's number the handler's own time is billed",
        ),
    ],
)
def test_what_lambda_answers_and_what_it_comes_to(
    invoker: Running,
    lambdas: LambdaEndpoint,
    behave: Callable[[Task, int], Reply],
    wanted: tuple[bool, int, int, tuple[float, ...], int],
    reason: str,
) -> None:
    lambdas.behave = behave
    outcome = run_one(invoker)
    told = (outcome.requests, outcome.billed_s, outcome.throttled)
    assert (outcome.report is not None, len(lambdas.events), *told) == wanted
    assert reason in outcome.reason


@pytest.mark.parametrize(
    ("error", "failure"), [("RolloutError", "environment"), ("EnvironmentHungError", "hung")]
)
def test_what_the_environment_did_is_not_issued_again_and_told_as_the_actor_said_it(
    invoker: Running, lambdas: LambdaEndpoint, error: str, failure: str
) -> None:
    said = (
        'Mine-v0 failed at step 2: OSError()\n  File "mine.py", line 3, in step\n    ' + "x" * 400
    )
    lambdas.behave = lambda t, nth: function_error(said, kind=error)
    outcome = run_one(invoker)
    assert (outcome.report, outcome.reason, outcome.failure) == (None, said, failure)
    assert len(lambdas.events) == 1


def test_an_actor_whose_connections_break_has_vanished(
    invoker: Running, lambdas: LambdaEndpoint
) -> None:
    lambdas.behave = lambda t, nth: BROKEN
    outcome = run_one(invoker)
    assert (outcome.report, outcome.failure) == (None, "vanished")
    assert outcome.billed_s == (60.0, 60.0)


def test_a_function_that_was_idle_for_weeks_is_waited_for_and_nothing_of_it_billed(
    start_invoker: StartInvoker, lambdas: LambdaEndpoint
) -> None:
    invoker = start_invoker(waking_tries=3, waking_pause_s=0.001)
    lambdas.behave = lambda t, nth: waking() if nth < 3 else report(t)
    outcome = run_one(invoker)
    assert outcome.report is not None
    assert (outcome.throttled, outcome.requests, outcome.billed_s) == (0, 1, (0.1,))

    lambdas.behave = lambda t, nth: waking()
    outcome = run_one(invoker)
    assert "ResourceNotReadyException" in outcome.reason
    assert (outcome.throttled, outcome.requests, outcome.billed_s) == (0, 0, ())


def test_a_task_whose_turn_comes_after_its_deadline_is_not_invoked(
    start_invoker: StartInvoker, lambdas: LambdaEndpoint
) -> None:
    gate = threading.Event()
    lambdas.behave = lambda t, nth: Reply(body=report(t).body, gate=gate)
    invoker = start_invoker(most=2, limit=lambda: 1)
    sink, unwanted = Sink(), threading.Event()
    awaited = Awaited(wanted=lambda: not unwanted.is_set())
    invoker.submit([task(i) for i in range(3)], sink, awaited)
    lambdas.wait_events("sample", 1)
    unwanted.set()
    gate.set()
    first, *others = sorted(sink.wait(3), key=lambda outcome: -outcome.requests)
    assert first.report is not None
    for late in others:
        assert (late.report, late.requests, late.billed_s) == (None, 0, ())
        assert "nobody waited" in late.reason
    assert len(lambdas.events) == 1


def test_a_task_that_fits_into_no_event_fails_at_no_cost_and_keeps_no_other(
    invoker: Running, lambdas: LambdaEndpoint
) -> None:
    sink = Sink()
    invoker.submit([task(0, **{f"text{i}": "x" * 250 for i in range(20)}), task(1)], sink)
    large, other = sink.wait(2)
    assert (large.report, large.requests, large.billed_s) == (None, 0, ())
    assert "at most 4096 fit; shorten env_kwargs" in large.reason
    assert other.report is not None
    assert len(lambdas.events) == 1


def test_a_task_that_cannot_be_made_is_told_of_when_those_before_it_have_ended(
    invoker: Running,
) -> None:
    def tasks() -> Iterator[RolloutTask]:
        yield task(0)
        raise KeyError("a surprise")

    sink = Sink()
    with pytest.raises(KeyError):
        invoker.submit(tasks(), sink).result(10)
    assert [outcome.report is not None for outcome in sink.outcomes] == [True]


@pytest.mark.parametrize("broken", [0, 2])
def test_a_ping_that_breaks_ends_no_other(
    invoker: Running, lambdas: LambdaEndpoint, broken: int
) -> None:
    ended: list[Execution] = []

    def tell(execution: Execution) -> None:
        ended.append(execution)
        if len(ended) <= broken:
            raise KeyError("a surprise")

    invoker.ping(3, tell)
    assert (len(ended), len(lambdas.events)) == (3, 3)


def test_an_invocation_that_breaks_unexpectedly_is_an_outcome_billed_at_its_worst(
    start_invoker: StartInvoker, function: LambdaFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(_payload: bytes) -> NoReturn:
        raise RuntimeError("credentials are still expired")

    monkeypatch.setattr(function, "invoke", breaks)
    sink = Sink()
    start_invoker().submit([task(0), task(1)], sink)
    for outcome in sink.wait(2):
        assert (outcome.report, outcome.billed_s, outcome.requests) == (None, (60.0,), 1)
        assert "RuntimeError" in outcome.reason


def test_closing_drops_what_has_not_started_and_waits_for_the_rest(
    start_invoker: StartInvoker, lambdas: LambdaEndpoint
) -> None:
    gate = threading.Event()
    lambdas.behave = lambda t, nth: Reply(body=report(t).body, gate=gate)
    invoker = start_invoker(most=2)
    sink = Sink()
    invoker.submit([task(i) for i in range(6)], sink)
    lambdas.wait_events("sample", 2)
    assert not invoker.close(wait_s=0.01)
    gate.set()
    assert invoker.close(wait_s=10)
    assert len(sink.outcomes) == 2
    assert len(lambdas.events) == 2


def test_an_outcome_says_when_its_first_request_went_out(
    invoker: Running, lambdas: LambdaEndpoint
) -> None:
    seconds: list[float] = []

    def behave(event: Task, nth: int) -> Reply:
        seconds.append(time.perf_counter())
        return report(event) if nth else function_error("boom")

    lambdas.behave = behave
    before = time.perf_counter()
    outcome = run_one(invoker)
    assert outcome.requests == 2
    assert outcome.sent_at is not None
    assert before < outcome.sent_at < seconds[0] < seconds[1]


def test_a_throttled_task_is_tried_for_some_time_and_has_then_failed_at_no_cost(
    start_invoker: StartInvoker, lambdas: LambdaEndpoint
) -> None:
    invoker = start_invoker(throttled_s=0.3, first_pause_s=0.02)
    lambdas.behave = lambda t, nth: throttle()
    before = time.monotonic()
    outcome = run_one(invoker)
    assert 0.3 <= time.monotonic() - before < 2
    assert "TooManyRequestsException" in outcome.reason
    assert (outcome.report, outcome.requests, outcome.billed_s) == (None, 0, ())
    assert outcome.throttled == len(lambdas.events) > 2


def test_a_throttled_task_waits_as_long_as_lambda_asks(
    start_invoker: StartInvoker, lambdas: LambdaEndpoint
) -> None:
    seconds: list[float] = []

    def behave(t: Task, nth: int) -> Reply:
        seconds.append(time.monotonic())
        return report(t) if nth else throttle(retry_after_s=1)

    lambdas.behave = behave
    assert run_one(start_invoker(throttled_s=15.0)).report is not None
    assert 1.0 <= seconds[1] - seconds[0] < 3.0


def test_environments_start_one_after_the_other_and_warm_ones_at_once(
    start_invoker: StartInvoker, lambdas: LambdaEndpoint
) -> None:
    gate = threading.Event()
    seconds: list[float] = []

    def behave(t: Task, nth: int) -> Reply:
        seconds.append(time.monotonic())
        return replace(report(t), gate=gate)

    def spread_s(tasks: list[RolloutTask]) -> float:
        seconds.clear()
        gate.clear()
        invoker.submit(tasks, sink)
        lambdas.wait_events("sample", tasks[-1].actor_index + 1)
        gate.set()
        sink.wait(tasks[-1].actor_index + 1)
        return max(seconds) - min(seconds)

    lambdas.behave = behave
    invoker, sink = start_invoker(most=8, cold_starts_per_s=5.0), Sink()
    assert spread_s([task(i) for i in range(5)]) > 0.6
    assert spread_s([task(i) for i in range(5, 10)]) < 0.4


def test_closing_ends_the_pause_after_a_throttle_at_once(
    start_invoker: StartInvoker, lambdas: LambdaEndpoint
) -> None:
    lambdas.behave = lambda t, nth: throttle()
    invoker = start_invoker(throttled_s=3600.0, first_pause_s=3600.0)
    invoker.submit([task()], Sink())
    lambdas.wait_events("sample", 1)
