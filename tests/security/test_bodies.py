"""Whatever is in a body, it is refused with a reason, costs little, and changes nothing."""

import json
from itertools import repeat

import pytest

from services.scaler.api.guard import JOB_BODY_BYTES
from tests.security.wire import Answer, request, send
from tests.services.scaler.running import TOKEN, Scaler, result

JSON = "Content-Type: application/json"
ROUTES = ["/v1/jobs", "/v1/leases", "/v1/jobs/a/rounds/0", "/v1/jobs/a/finish"]


def post(scaler: Scaler, path: str, body: bytes, *headers: str) -> Answer:
    length = f"Content-Length: {len(body)}"
    message = request("POST", path, JSON, length, "Connection: close", *headers, token=TOKEN)
    return send(str(scaler.http.base_url), message, body)


@pytest.mark.parametrize("length", [str(JOB_BODY_BYTES + 1), "1000000000000", "9" * 30])
def test_a_body_said_to_be_too_long_is_refused_unread(attacked: Scaler, length: str) -> None:
    head = request("POST", "/v1/jobs", JSON, f"Content-Length: {length}", token=TOKEN)
    answer = send(str(attacked.http.base_url), head)
    assert answer.status in (400, 413)


def test_a_chunked_body_without_end_is_cut_off(attacked: Scaler) -> None:
    head = request("POST", "/v1/jobs", JSON, "Transfer-Encoding: chunked", token=TOKEN)
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    answer = send(str(attacked.http.base_url), head, *repeat(chunk, 200))
    assert answer.status in (413, None), "refused, or hung up on while still sending"


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: -1",),
        ("Content-Length: 0x10",),
        ("Content-Length: 3, 4",),
        ("Content-Length: 3", "Content-Length: 4"),
        ("Content-Length: 3", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: gzip, identity",),
        ("Content-Length : 3",),
    ],
)
def test_a_length_that_can_be_read_two_ways_smuggles_nothing(
    attacked: Scaler, headers: tuple[str, ...]
) -> None:
    smuggled = request("POST", "/v1/jobs", JSON, "Content-Length: 2", token=TOKEN, body=b"{}")
    head = request("POST", "/v1/leases", JSON, *headers, token=TOKEN)
    answer = send(str(attacked.http.base_url), head + b"0\r\n\r\n" + smuggled)
    assert answer.text.count("HTTP/1.1 2") == 0


def test_headers_without_end_are_cut_off(attacked: Scaler) -> None:
    message = request("GET", "/v1/jobs", f"X-Long: {'x' * 2_000_000}", token=TOKEN)
    answer = send(str(attacked.http.base_url), message)
    assert answer.status in (400, 431, None)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"123",
        b"\xff\xfe{}",
        b'{"env_id": "\xc3\x28"}',
        b'{"env_id": "\\ud800"}',
        b'{"env_kwargs": {"a": "\\udfff"}}',
        b'{"learner_id": "a\\u0000b"}',
        b"[" * 30_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b'{"seed": ' + b"9" * 5000 + b"}",
        b'{"seed": 1e400}',
        b'{"\\u005f_proto__": {}, "__class__": "x"}',
    ],
    ids=range(16),
)
def test_what_is_no_message_is_refused_with_a_reason(attacked: Scaler, body: bytes) -> None:
    for path in ROUTES:
        answer = post(attacked, path, body)
        assert answer.status in (400, 404, 422)
        assert "application/problem+json" in answer.text
        assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    "spec",
    [
        {"actors": {"min": 1, "max": 10**9}},
        {"actors": {"min": 1, "max": 2**70}},
        {"steps_per_actor": 10**12},
        {"envs_per_actor": 10**6},
        {"seed": -1},
        {"hyperparameters": {"__class__": "os.system"}},
        {"hyperparameters": {f"n{i}": 1 for i in range(2000)}},
        {"checkpoint": {"keep": True}},
        {"callback": "os.system"},
        {"scaling": {"policy": "schedule", "num_actors": [8] * 10_001}},
        {"scaling": {"policy": "schedule", "num_actors": [8, 10**400]}},
        {"scaling": {"policy": "fixed", "num_actors": 10**400}},
        {"scaling": {"policy": "fixed", "num_actors": 10**400}, "actors": {"min": 1, "max": 8}},
        {"scaling": {"policy": "minionsrl", "agent": "/etc/passwd"}},
        {"scaling": {"policy": "minionsrl", "agent": {"layers": [{"weights": [[[]]]}]}}},
    ],
    ids=lambda spec: str(spec)[:60],
)
def test_sizes_and_names_out_of_range_are_refused(
    attacked: Scaler, spec: dict[str, object]
) -> None:
    assert post(attacked, "/v1/jobs", json.dumps(spec).encode()).status == 422


def test_a_network_that_no_machine_has_room_for_is_refused_once_its_inputs_are_known(
    attacked: Scaler,
) -> None:
    (error,) = attacked.refused({"hyperparameters": {"hidden_sizes": [10**9, 10**9]}}).errors
    assert error.field == "hyperparameters.hidden_sizes"
    (job,) = attacked.http.get("/v1/jobs").json()["jobs"]
    assert attacked.http.delete(f"/v1/jobs/{job['job_id']}").status_code == 204


def test_times_that_nothing_takes_are_refused(attacked: Scaler) -> None:
    """They would be added to the clock when the job is resumed."""
    done = result(0).model_dump(mode="json")
    done["timing"]["update_s"] = 1e308
    body = {"lease_id": "lease", "policy_version": 1, "previous": done}
    answer = post(attacked, "/v1/jobs/a/rounds/1", json.dumps(body).encode())
    assert answer.status == 422
    assert "previous.timing.update_s" in answer.text


def test_the_largest_body_allowed_is_still_only_refused(attacked: Scaler) -> None:
    body = b'{"env_id": "' + b"x" * (JOB_BODY_BYTES - 20) + b'"}'
    answer = post(attacked, "/v1/jobs", body)
    assert answer.status == 422
    assert len(answer.text) < 2000, "what was wrong is not sent back in full"


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-python-pickle", ""])
def test_only_json_is_json(attacked: Scaler, content_type: str) -> None:
    body = b'{"env_id": "Hopper-v5"}'
    headers = (f"Content-Type: {content_type}", f"Content-Length: {len(body)}", "Connection: close")
    message = request("POST", "/v1/jobs", *headers, token=TOKEN)
    assert send(str(attacked.http.base_url), message, body).status in (400, 415, 422)
