"""Who gets in, and with how much."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocket
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from services.scaler.api.guard import (
    JOB_BODY_BYTES,
    SMALL_BODY_BYTES,
    BearerGuard,
    BodyLimit,
    Tokens,
    load_tokens,
)
from services.scaler.settings import Settings
from shared.contracts.problem import Problem
from shared.service.tokens import TokenError
from tests.patience import ANSWER_S
from tests.services.scaler.lambda_endpoint import serve
from tests.services.scaler.running import TOKEN, Scaler, StartScaler


@pytest.mark.parametrize("authorization", [None, "AWS4-HMAC-SHA256 Credential=AKID"])
def test_a_header_of_its_own_leaves_authorization_to_others(
    lasting_scaler: Scaler, authorization: str | None
) -> None:
    headers = {"X-Nitro-Token": TOKEN}
    if authorization is not None:
        headers["Authorization"] = authorization
    url = lasting_scaler.http.base_url.join("/v1/jobs")
    assert httpx.get(url, headers=headers, timeout=ANSWER_S).status_code == 200


def test_a_websocket_is_refused_even_with_the_token() -> None:
    async def open_door(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.close()

    app = BearerGuard(
        Starlette(routes=[WebSocketRoute("/ws", open_door)]), tokens=Tokens(operator=TOKEN)
    )
    with serve(app) as url, pytest.raises(InvalidStatus, match="403"):
        connect(
            f"{url.replace('http', 'ws')}/ws",
            additional_headers={"Authorization": f"Bearer {TOKEN}"},
            proxy=None,
        )


def test_authentication_can_only_be_turned_off_by_name(start_scaler: StartScaler) -> None:
    with start_scaler(token=None, auth="disabled") as scaler:
        assert httpx.get(scaler.http.base_url.join("/v1/jobs"), timeout=ANSWER_S).status_code == 200


def test_without_a_token_there_is_no_scaler() -> None:
    with pytest.raises(TokenError, match=r"NITRO_TOKEN or NITRO_TOKEN_FILE.*NITRO_AUTH=disabled"):
        load_tokens(Settings())


def test_the_token_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    assert load_tokens(Settings(token_file=file)).operator == "secret"
    both = Settings(token_file=file, token=SecretStr("other"))
    assert load_tokens(both).operator == "other"


@pytest.mark.parametrize("content", [None, "", " \n", b"\xff\xfe"])
def test_a_token_file_that_holds_none_is_named(tmp_path: Path, content: str | bytes | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(TokenError, match=f"NITRO_TOKEN_FILE.*{file}"):
        load_tokens(Settings(token_file=file))


def test_a_body_above_the_limit_is_refused_whether_it_says_its_length_or_not(
    lasting_scaler: Scaler,
) -> None:
    body = b"x" * (JOB_BODY_BYTES + 1)
    told = lasting_scaler.http.post("/v1/jobs", content=body)
    untold = lasting_scaler.http.post("/v1/jobs", content=iter([body[:1000], body[1000:]]))
    for response in (told, untold):
        assert response.status_code == 413
        assert "131072 bytes" in Problem.model_validate_json(response.content).detail


def test_rounds_and_results_may_be_larger(lasting_scaler: Scaler) -> None:
    body = b" " * (SMALL_BODY_BYTES + 1)
    for path in ("/v1/jobs/none/rounds/0", "/v1/jobs/none/finish"):
        assert lasting_scaler.http.post(path, content=body).status_code == 422
        assert lasting_scaler.http.post(path, content=body * 16).status_code == 413


@pytest.mark.parametrize("come", [b"", b"{}"])
def test_a_request_whose_end_never_comes_is_none(come: bytes) -> None:
    # Without its body the request to resume a job would be another one, and a valid one.
    taken: list[Scope] = []
    sent: list[Message] = []
    messages: Iterator[Message] = iter(
        [{"type": "http.request", "body": come, "more_body": True}, {"type": "http.disconnect"}]
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        taken.append(scope)

    async def receive() -> Message:
        return next(messages)

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/v1/jobs/a/resume", "headers": [(b"content-length", b"40")]}
    asyncio.run(BodyLimit(app)(scope, receive, send))
    assert not taken
    assert not sent


def test_a_viewer_looks_and_does_nothing(start_scaler: StartScaler) -> None:
    with start_scaler(viewer_token="for-looking") as scaler:  # noqa: S106
        job_id = scaler.submit().job_id
        headers = {"Authorization": "Bearer for-looking"}
        with httpx.Client(base_url=scaler.http.base_url, headers=headers, timeout=ANSWER_S) as http:
            assert http.get("/v1/session").json()["role"] == "viewer"
            assert scaler.http.get("/v1/session").json()["role"] == "operator"
            paths = scaler.http.get("/openapi.json").json()["paths"]
            for path, methods in paths.items():
                at = path.format(job_id=job_id, lease_id="x", round_index=0, name="x")
                for method in methods:
                    response = http.request(method, at)
                    if method == "get":
                        assert response.status_code in (200, 404), (path, response.text)
                    else:
                        assert response.status_code == 403, (method, path)
                        problem = Problem.model_validate_json(response.content)
                        assert "is read-only" in problem.detail
        assert scaler.job(job_id).status == "queued"


def test_both_tokens_may_not_be_one() -> None:
    one = SecretStr("same")
    with pytest.raises(TokenError, match="viewers could change jobs"):
        load_tokens(Settings(token=one, viewer_token=one))
