"""An id is an id: no path, no separator and no pattern of anything behind it."""

import pytest

from tests.security.wire import request, send
from tests.services.scaler.running import TOKEN, Scaler

TRICKS = [
    "..",
    "../..",
    "../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e",
    "%2e%2e%2f%2e%2e%2fetc",
    "%252e%252e%252f",
    "..%5c..%5cwindows",
    "%00",
    "job%00.json",
    "job%0a",
    "job%0d%0aSet-Cookie:%20a=b",
    "%c0%ae%c0%ae",
    "%ff",
    "JOB",
    "-job",
    ".nitro",
    "nitro.sqlite3",
    "*",
    "job:*",
    "%7bjob%7d",
    "{job}",
    "job%20or%201=1",
    "'%3b%20drop%20table%20jobs%3b--",
    "~root",
    "a" * 64,
    "a" * 50_000,
]


CALLS = [
    ("GET", "/v1/jobs/{}"),
    ("DELETE", "/v1/jobs/{}"),
    ("POST", "/v1/jobs/{}/stop"),
    ("GET", "/v1/jobs/{}/rounds"),
    ("GET", "/v1/jobs/{}/cost"),
    ("PUT", "/v1/leases/{}"),
]


@pytest.mark.parametrize("trick", TRICKS, ids=range(len(TRICKS)))
def test_tricks_find_nothing(attacked: Scaler, trick: str) -> None:
    victim = attacked.runs_dir.parent / "victim"
    victim.write_text("untouched")
    for method, path in CALLS:
        message = request(method, path.format(trick), "Connection: close", token=TOKEN)
        answer = send(str(attacked.http.base_url), message)
        assert answer.status in (400, 404, 405, 414, None), answer.text[:500]
        assert "Set-Cookie" not in answer.text.partition("\r\n\r\n")[0]
        assert "root:" not in answer.text
    assert victim.read_text() == "untouched"


def test_every_id_of_a_round_is_a_number(attacked: Scaler) -> None:
    for index in ("-1", "1e3", "0x10", "9" * 5000, "%2e%2e", "0/../1"):
        head = request(
            "POST",
            f"/v1/jobs/a/rounds/{index}",
            "Content-Type: application/json",
            "Content-Length: 2",
            "Connection: close",
            token=TOKEN,
        )
        answer = send(str(attacked.http.base_url), head, b"{}")
        assert answer.status in (400, 404, 422), index


@pytest.mark.parametrize("key", ["", " ", "a b", "ä", "k" * 129, "a\x00b"])
def test_an_idempotency_key_is_plain(attacked: Scaler, key: str) -> None:
    body = b'{"env_id": "Hopper-v5", "seed": -1}'
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: scaler\r\nConnection: close\r\n"
    head += f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n".encode()
    head += f"Content-Length: {len(body)}\r\nIdempotency-Key: {key}\r\n\r\n".encode()
    assert send(str(attacked.http.base_url), head + body).status in (400, 422)
