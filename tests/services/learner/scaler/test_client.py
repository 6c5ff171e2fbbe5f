"""The client against a real HTTP server that answers by script."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import fmean

import pytest

from services.learner.scaler.client import LeaseLostError, ScalerClient, ScalerError
from services.scaler.api.guard import LARGE_BODY_BYTES
from shared.contracts.billing import JobCost, LedgerLine
from shared.contracts.leases import FinishRequest, LeaseState
from shared.contracts.rounds import RoundRequest
from tests.services.learner.made_rounds import plan
from tests.services.scaler.running import result


class ScriptedServer(ThreadingHTTPServer):
    """Answers each request with the next (status, body) of `script`; the last one repeats."""

    daemon_threads = True
    script: list[tuple[int, object]]
    seen: list[tuple[str, str, dict[str, str], bytes]]


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedServer
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.command, self.path, dict(self.headers), body))
        script = self.server.script
        status, content = script.pop(0) if len(script) > 1 else script[0]
        data = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - names set by http.server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep the test's output clean."""


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer(("127.0.0.1", 0), _Handler)
    server.script, server.seen = [], []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def _client(server: ScriptedServer, patience_s: float = 20.0) -> ScalerClient:
    return ScalerClient(
        f"http://127.0.0.1:{server.server_port}", "the-token", patience_s=patience_s
    )


_ALIVE = {"expires_in_s": 30.0, "stop": None}
_PROBLEM = {
    "title": "Conflict",
    "status": 409,
    "detail": "lease l1 was taken over",
    "errors": [{"field": "lease_id", "message": "expired"}],
}


def test_a_heartbeat_carries_the_token_and_brings_the_stop_request(server: ScriptedServer) -> None:
    server.script = [(200, {"expires_in_s": 10.0, "stop": "user"})]
    with _client(server) as client:
        assert client.heartbeat("l1") == LeaseState(expires_in_s=10.0, stop="user")
    method, path, headers, _ = server.seen[0]
    assert (method, path) == ("PUT", "/v1/leases/l1")
    assert headers["Authorization"] == "Bearer the-token"


def test_no_job_is_none(server: ScriptedServer) -> None:
    server.script = [(204, None)]
    with _client(server) as client:
        assert client.lease("learner-1", wait_s=0.5) is None
    asked = {
        "learner_id": "learner-1",
        "kind": None,
        "job_id": None,
        "wait_s": 0.5,
        "trouble": None,
    }
    assert json.loads(server.seen[0][3]) == asked


def test_a_learner_says_what_kind_of_job_it_wants(server: ScriptedServer) -> None:
    server.script = [(204, None)]
    with _client(server) as client:
        client.lease("learner-1", wait_s=0.5, kind="cpu")
    assert json.loads(server.seen[0][3])["kind"] == "cpu"


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_passing_trouble_is_called_again(server: ScriptedServer, status: int) -> None:
    server.script = [(status, None), (status, None), (200, _ALIVE)]
    with _client(server) as client:
        assert client.heartbeat("l1").stop is None
    assert len(server.seen) == 3


def test_a_conflict_means_the_lease_is_lost_and_is_not_repeated(server: ScriptedServer) -> None:
    server.script = [(409, _PROBLEM)]
    finish = FinishRequest(lease_id="l1", status="succeeded", stop_reason="max_rounds")
    with _client(server) as client, pytest.raises(LeaseLostError) as caught:
        client.finish("job", finish)
    assert "lease l1 was taken over" in str(caught.value)
    assert "lease_id: expired" in str(caught.value)
    assert len(server.seen) == 1


def test_a_refusal_is_an_error_that_repeats_the_scalers_words(server: ScriptedServer) -> None:
    server.script = [(422, {**_PROBLEM, "status": 422, "detail": "curvature is not a number"})]
    with _client(server) as client, pytest.raises(ScalerError, match="curvature is not a number"):
        client.heartbeat("l1")


def test_an_answer_of_another_version_is_named(server: ScriptedServer) -> None:
    server.script = [(200, {"colour": "blue"})]
    with _client(server) as client, pytest.raises(ScalerError, match="of one version"):
        client.heartbeat("l1")


def test_patience_ends_with_the_setting_named(server: ScriptedServer) -> None:
    server.script = [(503, None)]
    with (
        _client(server, patience_s=1.0) as client,
        pytest.raises(ScalerError, match="NITRO_SCALER_PATIENCE_S"),
    ):
        client.heartbeat("l1")
    assert len(server.seen) >= 2


@pytest.mark.parametrize("count", [10_000, 400_000])
def test_of_very_many_returns_an_even_sample_is_told(server: ScriptedServer, count: int) -> None:
    server.script = [(200, plan("job", round_index=1).model_dump(mode="json"))]
    returns = tuple(float(i) for i in range(count))
    previous = result(0, episode_returns=returns)
    with _client(server) as client:
        request = RoundRequest(lease_id="lease", policy_version=1, previous=previous)
        client.open_round("job", 1, request)
    body = server.seen[0][-1]
    assert len(body) < LARGE_BODY_BYTES / 4
    sent = RoundRequest.model_validate_json(body).previous
    assert sent is not None
    assert len(sent.episode_returns) == 10_000
    assert fmean(sent.episode_returns) == pytest.approx(fmean(returns), rel=1e-3)


def test_the_token_is_in_no_error(server: ScriptedServer) -> None:
    server.script = [(401, {"title": "Unauthorized", "status": 401, "detail": "wrong token"})]
    with _client(server) as client, pytest.raises(ScalerError) as caught:
        client.heartbeat("l1")
    assert "the-token" not in str(caught.value)


def test_a_bill_is_fetched_page_by_page(server: ScriptedServer) -> None:
    lines = tuple(
        LedgerLine(
            round=index,
            attempt=0,
            item="learner",
            quantity=1.0,
            unit="second",
            unit_price_usd=0.5,
            amount_usd=0.5,
        )
        for index in range(3)
    )
    bill = JobCost(
        job_id="job",
        settled_usd=1.5,
        reserved_usd=0.0,
        by_item={"learner": 1.5},
        lines=lines,
        price_table="paper",
        projected_wall_s=1.0,
        assumptions=(),
    )
    pages = [
        bill.model_copy(update={"lines": lines[:2], "next_cursor": "2"}),
        bill.model_copy(update={"lines": lines[2:]}),
    ]
    server.script = [(200, page.model_dump(mode="json")) for page in pages]
    with _client(server) as client:
        assert client.cost("job") == bill
    assert [path for _, path, *_ in server.seen] == [
        f"/v1/jobs/job/cost?cursor={cursor}" for cursor in (0, 2)
    ]
