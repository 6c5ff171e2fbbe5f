"""Readiness on a clock of the test's, and of a running scaler that strangers ask in a loop."""

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor, as_completed

import httpx
import pytest

from services.scaler.book.table import StoreError
from services.scaler.launching.lambda_function import LambdaApiError
from services.scaler.views.readiness import Readiness
from shared.cache.connection import CacheError
from shared.contracts.problem import Problem
from tests.patience import ANSWER_S
from tests.services.scaler.jobs.leasing import add_job
from tests.services.scaler.lambda_endpoint import LambdaEndpoint
from tests.services.scaler.running import StartScaler

_STRANGERS = 45
"""More than there are threads in the process."""


class Rig:
    def __init__(self) -> None:
        self.now, self.looks, self.there = 100.0, 0, True
        self.readiness = Readiness({"store": self._look}, every_s=10.0, now=lambda: self.now)

    async def _look(self) -> None:
        self.looks += 1
        if not self.there:
            raise StoreError("the disk is full")

    def after(self, seconds: float) -> tuple[dict[str, str], int]:
        self.now += seconds
        return asyncio.run(self.readiness.missing()), self.looks


def test_a_look_holds_for_a_while_and_what_is_missing_is_looked_for_sooner() -> None:
    rig = Rig()
    assert rig.after(0.0) == ({}, 1)
    rig.there = False
    assert rig.after(9.9) == ({}, 1)
    missing = {"store": "the disk is full"}
    assert rig.after(0.1) == (missing, 2)
    assert rig.after(0.9) == (missing, 2)
    rig.there = True
    assert rig.after(0.1) == ({}, 3)
    assert rig.after(9.9) == ({}, 3)


def test_a_look_after_a_long_silence_holds_as_long_as_any() -> None:
    rig = Rig()
    assert rig.after(1000.0) == ({}, 1)
    assert rig.after(9.9) == ({}, 1)
    assert rig.after(0.1) == ({}, 2)


def test_all_that_is_missing_is_named_at_once() -> None:
    errors = {
        "cache": CacheError("no answer"),
        "lambda": LambdaApiError("throttled"),
        "store": StoreError("the disk is full"),
    }

    def lacks(error: Exception) -> Callable[[], Awaitable[object]]:
        async def check() -> object:
            raise error

        return check

    async def there() -> None: ...

    checks = {name: lacks(error) for name, error in errors.items()}
    readiness = Readiness({**checks, "clock": there}, every_s=10.0, now=lambda: 0.0)
    assert asyncio.run(readiness.missing()) == {
        "cache": "no answer",
        "lambda": "throttled",
        "store": "the disk is full",
    }


async def test_who_asks_during_a_look_gets_the_last_answer_at_once() -> None:
    now, looks = [0.0], [0]
    begun, go_on = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def look() -> None:
        looks[0] += 1
        begun.release()
        await go_on.acquire()
        raise StoreError(f"the disk is full ({looks[0]})")

    readiness = Readiness({"store": look}, every_s=10.0, now=lambda: now[0])
    seen: list[dict[str, str]] = []
    for now[0] in (0.0, 60.0):
        looking = asyncio.create_task(readiness.missing())
        await begun.acquire()
        seen.append(await readiness.missing())
        go_on.release()
        seen.append(await looking)
    assert "under way" in seen[0]["store"]
    assert seen[1:] == [{"store": f"the disk is full ({n})"} for n in (1, 1, 2)]
    assert looks == [2]


def test_lambda_that_never_answers_keeps_no_learner_waiting(start_scaler: StartScaler) -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=100) as silent,
        ThreadPoolExecutor(_STRANGERS) as strangers,
    ):
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with start_scaler(lambda_endpoint_url=url) as scaler:
            scaler.call(add_job(scaler.parts.book, "job"))
            lease = scaler.lease()
            ready = scaler.http.base_url.join("/readyz")
            asking = [
                strangers.submit(httpx.get, ready, trust_env=False, timeout=ANSWER_S)
                for _ in range(_STRANGERS)
            ]
            # All but the one that looks have their answer.
            first = [*itertools.islice(as_completed(asking), _STRANGERS - 1)]
            beat = scaler.http.put(f"/v1/leases/{lease.lease_id}", timeout=ANSWER_S)
            listed = scaler.http.get("/v1/jobs", timeout=ANSWER_S)
    assert {asked.result().status_code for asked in first} == {503}
    assert (beat.status_code, listed.status_code) == (200, 200)


def test_strangers_who_ask_in_a_loop_reach_lambda_once(
    start_scaler: StartScaler, lambdas: LambdaEndpoint
) -> None:
    with start_scaler(readiness_every_s=600.0) as scaler:
        for _ in range(20):
            url = scaler.http.base_url.join("/readyz")
            assert httpx.get(url, trust_env=False, timeout=ANSWER_S).json() == {"status": "ready"}
    assert lambdas.account_reads == 1


@pytest.mark.parametrize(
    "answer", [b"", b"{}", b"[]", b"null", b"<html>", b"\xff", b'{"AccountLimit": {}}']
)
def test_an_endpoint_that_is_not_lambda_is_missing(
    start_scaler: StartScaler, lambdas: LambdaEndpoint, answer: bytes
) -> None:
    lambdas.account_answer = answer
    with start_scaler() as scaler:
        response = scaler.http.get("/readyz")
        assert response.status_code == 503
        (missing,) = Problem.model_validate_json(response.content).errors
        assert missing.field == "lambda_endpoint"
        assert f"{lambdas.url} does not answer as Lambda does" in missing.message
        lambdas.account_answer = None
        assert scaler.http.get("/readyz").json()["status"] == "ready"
