"""How much of a request's head is held."""

import pytest

from services.scaler.connection import MAX_HEAD_BYTES
from tests.security.wire import request, send
from tests.services.scaler.running import TOKEN, Scaler

PIECE = b"x" * 8192


def piecewise(count: int) -> list[bytes]:
    head = b"GET /v1/jobs HTTP/1.1\r\nHost: scaler\r\n"
    return [head, b"X-Long: ", *([PIECE] * count)]


def test_a_head_without_end_is_refused(lasting_scaler: Scaler) -> None:
    answer = send(str(lasting_scaler.http.base_url), *piecewise(10_000))
    assert answer.status in (400, None), "refused, or hung up on while still sending"


def test_a_head_of_usual_size_is_read(lasting_scaler: Scaler) -> None:
    last = f"\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    answer = send(str(lasting_scaler.http.base_url), *piecewise(2), last)
    assert answer.status == 200


@pytest.mark.parametrize("count", [1, 30])
def test_requests_on_one_connection_are_counted_apart(lasting_scaler: Scaler, count: int) -> None:
    one = request("GET", "/healthz", f"X-Long: {'x' * (MAX_HEAD_BYTES // 4)}")
    last = request("GET", "/v1/jobs", "Connection: close", token=TOKEN)
    url = str(lasting_scaler.http.base_url)
    assert send(url, *([one] * count), last).status == 200
