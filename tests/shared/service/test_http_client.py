"""HTTP clients by what the environment says of proxies and certificates."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from shared.service.http_client import HttpSetupError, http_client, is_loopback
from tests.patience import ANSWER_S

_VARIABLES = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _VARIABLES:
        for form in (name, name.lower()):
            monkeypatch.delenv(form, raising=False)


class _Recorder(BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    """A server of any address: what it is asked for is in `asked` of its handler."""
    _Recorder.asked = []
    with HTTPServer(("127.0.0.1", 0), _Recorder) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_this_machine_is_reached_without_the_environments_proxy_and_all_else_through_it(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HTTP_PROXY", here)
    monkeypatch.setenv("NO_PROXY", "elsewhere.example")
    for url in (here, "http://api.example"):
        with http_client(url, timeout_s=ANSWER_S) as client:
            assert client.get("/v1/jobs").status_code == 200
    assert _Recorder.asked == ["/v1/jobs", "http://api.example/v1/jobs"]


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
def test_certificates_are_verified_however_the_scheme_is_written(
    scheme: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Certificates are read where they are to be verified, and only there.
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    with pytest.raises(HttpSetupError, match="cannot read the certificates"):
        http_client(f"{scheme}://api.example", timeout_s=ANSWER_S)


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("ALL_PROXY", "socks5://u:hush@127.0.0.1:9", "ALL_PROXY names a SOCKS proxy, .* socksio"),
        ("https_proxy", "gopher://u:hush@proxy", "https_proxy is no proxy such as"),
        ("SSL_CERT_FILE", "/nowhere/hush.pem", "SSL_CERT_FILE: cannot read the certificates"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named_where_it_counts(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(HttpSetupError, match=says) as refused:
        http_client("https://api.example", timeout_s=1.0)
    assert "hush" not in str(refused.value)
    with http_client(f"http://127.0.0.1:{server.server_port}", timeout_s=ANSWER_S) as client:
        assert client.get("/").status_code == 200


@pytest.mark.parametrize("url", ["http://[::1", "http://", "http://host:port"])
def test_an_address_that_is_none_is_quoted(url: str) -> None:
    with pytest.raises(HttpSetupError, match="is no address such as"):
        http_client(url, timeout_s=1.0)


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://localhost:1", True),
        ("http://127.9.9.9", True),
        ("https://[::1]:2", True),
        ("http://10.0.0.1", False),
        ("http://localhost.example", False),
        ("http://[::1", False),
    ],
)
def test_what_is_this_machine(url: str, here: bool) -> None:
    assert is_loopback(url) is here


def test_certificates_are_read_where_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "none.pem"
    empty.write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(empty))
    with pytest.raises(HttpSetupError, match="SSL_CERT_FILE"):
        http_client("https://127.0.0.1:1", timeout_s=1.0)
