"""Signed requests, as they arrive: AWS's SDK signs what was received and must come to the same."""

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from nitro.client.client import NitroClient
from nitro.client.connection import connect
from nitro.errors import CommandError
from shared.contracts.views.jobs import JobList

KEY = Credentials("AKIDEXAMPLE", "secret-of-a-role", "session-of-a-role")
TOKEN = "the-token"  # noqa: S105
REGION = "eu-north-1"


@dataclass
class Gate:
    """A server in the authoriser's place; keeps the signature it was shown and the one it makes."""

    url: str = ""
    headers: list[dict[str, str]] = field(default_factory=list)
    signatures: list[tuple[str, str]] = field(default_factory=list)

    def receive(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        shown = dict(
            part.split("=", 1)
            for part in headers["authorization"].removeprefix("AWS4-HMAC-SHA256 ").split(", ")
        )
        assert shown["Credential"] == f"AKIDEXAMPLE/{self.date(headers)}/aws4_request"
        names = shown["SignedHeaders"].split(";")
        assert {"host", "x-amz-date", "x-amz-security-token", "x-nitro-token"} <= set(names)
        received = AWSRequest(
            method, f"{self.url}{path}", data=body, headers={name: headers[name] for name in names}
        )
        received.context["timestamp"] = headers["x-amz-date"]
        signer = SigV4Auth(KEY, "execute-api", REGION)
        expected = signer.signature(
            signer.string_to_sign(received, signer.canonical_request(received)), received
        )
        self.headers.append(headers)
        self.signatures.append((shown["Signature"], expected))

    def date(self, headers: dict[str, str]) -> str:
        return f"{headers['x-amz-date'][:8]}/{REGION}/execute-api"


@pytest.fixture
def gate() -> Iterator[Gate]:
    seen = Gate()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802 - the server's naming
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen.receive(self.command, self.path, headers, body)
            answer = JobList(jobs=(), next_cursor=None).model_dump_json().encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        seen.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield seen
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-a-role")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session-of-a-role")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)


def test_each_request_is_signed_as_it_arrives(gate: Gate) -> None:
    with NitroClient(gate.url, TOKEN, sign_for=REGION) as client:
        client.jobs()
        client.jobs(status="running", cursor="a+b/c= d~é")
    assert [headers["x-nitro-token"] for headers in gate.headers] == [TOKEN, TOKEN]
    for shown, expected in gate.signatures:
        assert shown == expected
    assert "secret-of-a-role" not in json.dumps(gate.headers)


def test_the_body_is_signed(gate: Gate) -> None:
    with NitroClient(gate.url, TOKEN, sign_for=REGION) as client, pytest.raises(CommandError):
        client.resume("job", max_rounds=7)  # answered with something else
    ((shown, expected),) = gate.signatures
    assert shown == expected


def test_the_command_line_signs_when_it_is_told_to(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NITRO_TOKEN", TOKEN)
    monkeypatch.setenv("NITRO_SIGN_FOR", REGION)
    with connect(gate.url, tmp_path) as client:
        client.jobs()
    ((shown, expected),) = gate.signatures
    assert shown == expected


def test_a_region_that_is_none_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NITRO_SIGN_FOR", "Stockholm")
    with pytest.raises(CommandError, match="NITRO_SIGN_FOR"):
        connect("http://127.0.0.1:1", tmp_path)


def test_without_credentials_what_to_do_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(CommandError, match=r"NITRO_SIGN_FOR.*aws sso login"):
        NitroClient("http://127.0.0.1:1", TOKEN, sign_for=REGION)
