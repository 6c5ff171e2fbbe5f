"""Who may call the emulator: not a page in a browser on the same machine."""

import json
from pathlib import Path

import httpx
import pytest

from services.emulator.app import main
from tests.services.emulator.conftest import (
    TOKEN,
    RunningEmulator,
    StartEmulator,
    emulator_environment,
)

INVOKE = "/2015-03-31/functions/probe:live/invocations"
SIGNED = "AWS4-HMAC-SHA256 Credential={}/20260101/us-east-1/lambda/aws4_request, SignedHeaders=host"
ROUTES = [
    ("POST", INVOKE),
    ("GET", "/2015-03-31/functions/probe"),
    ("GET", "/2016-08-19/account-settings"),
    ("PUT", "/2019-09-30/functions/probe/provisioned-concurrency?Qualifier=live"),
    ("GET", "/emulator/stats"),
    ("GET", "/emulator/faults"),
    ("PUT", "/emulator/faults"),
    ("GET", "/nothing"),
]


@pytest.fixture(scope="module")
def emulator(start_module_emulator: StartEmulator) -> RunningEmulator:
    return start_module_emulator(hosts=["emulator"])


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "authorization",
    ["", TOKEN, f"Bearer {TOKEN}x", f"bearer {TOKEN}", SIGNED.format("local"), SIGNED.format("")],
)
def test_nothing_is_done_without_the_token(
    emulator: RunningEmulator, method: str, path: str, authorization: str
) -> None:
    status, _, body = emulator.request(method, path, body=b"{}", Authorization=authorization)
    assert status == 403
    assert json.loads(body)["Message"].startswith("The security token")
    assert TOKEN.encode() not in body


def test_the_sdk_raises_what_aws_makes_it_raise_for_wrong_credentials(
    emulator: RunningEmulator,
) -> None:
    client = emulator.client(access_key_id="AKIDOFSOMEBODYELSE")
    with pytest.raises(client.exceptions.ClientError, match="UnrecognizedClientException"):
        client.invoke(FunctionName="probe:live")
    assert emulator.invoke({"do": "describe"}).status == 200


@pytest.mark.parametrize("path", ["/healthz", "/emulator/stats"])
def test_a_name_that_is_not_ours_is_refused_whatever_is_brought(
    emulator: RunningEmulator, path: str
) -> None:
    for name in ("attacker.example", f"127.0.0.1.attacker.example:{emulator.port}", ""):
        assert emulator.request("GET", path, Host=name)[0] == 403
    for name in (f"localhost:{emulator.port}", "[::1]", "Emulator:9000"):
        assert emulator.request("GET", path, Host=name)[0] == 200


def test_the_runtime_api_goes_by_our_names_only(emulator: RunningEmulator) -> None:
    url = f"http://127.0.0.1:{emulator.runtime_port}/2018-06-01/runtime/invocation/next"
    answer = httpx.get(url, headers={"Host": "attacker.example"}, trust_env=False)
    assert answer.status_code == 403


def test_health_is_open(emulator: RunningEmulator) -> None:
    for path in ("/healthz", "/readyz"):
        assert emulator.request("GET", path, Authorization="")[0] == 200


@pytest.mark.parametrize(
    "settings",
    [{"token": ""}, {"token": "short"}, {"token": "with/a-slash-in-its-midst"}],
)
def test_no_token_no_start(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in emulator_environment(**settings).items():
        monkeypatch.setenv(name, value)
    assert main() == 2
    said = capsys.readouterr().err
    assert "NITRO_EMULATOR_TOKEN" in said
    assert "slash" not in said


def test_the_token_can_come_from_a_file(start_emulator: StartEmulator, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    emulator = start_emulator(token=None, token_file=str(path))
    assert emulator.invoke({"do": "describe"}).status == 200
    assert emulator.request("GET", "/emulator/stats", Authorization="Bearer ")[0] == 403
