"""What goes over the wire, beside what unmodified boto3 sends and what AWS says a signature is."""

import asyncio
import hashlib
import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn, ParamSpec, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

import boto3
import botocore.session
import pytest
from botocore.config import Config
from botocore.credentials import CredentialProvider, RefreshableCredentials
from botocore.exceptions import ClientError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.scaler.launching.invoke_request import InvokeRequests
from services.scaler.launching.lambda_function import LambdaFunction
from services.scaler.settings import Settings
from tests.services.scaler.lambda_endpoint import serve
from tests.services.scaler.services_without_network import Inline
from tests.shared.tls_front import tls_front

P = ParamSpec("P")
T = TypeVar("T")

EVENT = '{"mode":"sample","text":"ä"}'.encode()
KEY, SECRET, TOKEN = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "a/session+token=="
REGION = "eu-west-1"
ATTEMPTS = {"amz-sdk-invocation-id", "amz-sdk-request"}
"""Headers in which boto3 counts its own attempts."""
OF_THE_MOMENT = {"x-amz-date", "authorization"}


@dataclass(frozen=True)
class Arrived:
    """One request as the server saw it."""

    method: str
    path: str
    """As sent, still quoted."""
    query: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Recorder:
    """A server that answers anything alike and keeps it."""

    url: str = ""
    status: int = 200
    answer: bytes = b'{"ok": true}'
    arrived: list[Arrived] = field(default_factory=list)

    async def __call__(self, request: Request) -> Response:
        self.arrived.append(
            Arrived(
                method=request.method,
                path=request.scope["raw_path"].decode(),
                query=request.scope["query_string"].decode(),
                headers=dict(request.headers),
                body=await request.body(),
            )
        )
        return Response(self.answer, status_code=self.status)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Recorder]:
    """A recorder in AWS's place, and temporary credentials from the environment."""
    made = Recorder()
    routes = [Route("/{path:path}", made.__call__, methods=["POST"])]
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    with serve(Starlette(routes=routes)) as made.url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", made.url)
        yield made


def settings(function: str = "nitro-actor") -> Settings:
    return Settings(auth="disabled", lambda_region=REGION, lambda_function=function)


@pytest.mark.parametrize(
    "function", ["nitro-actor", "arn:aws:lambda:eu-west-1:123456789012:function:nitro-actor"]
)
async def test_but_for_attempts_and_time_it_is_what_boto3_sends(
    recorder: Recorder, function: str
) -> None:
    ours = LambdaFunction(settings(function), Inline())
    assert (await ours.invoke(EVENT)).kind == "done"
    ours.close()
    config = Config(user_agent="nitro-scaler", retries={"total_max_attempts": 1})
    boto3.Session().client("lambda", region_name=REGION, config=config).invoke(
        FunctionName=function,
        Qualifier="live",
        InvocationType="RequestResponse",
        LogType="Tail",
        Payload=EVENT,
    )
    sent, wanted = recorder.arrived
    assert (sent.method, sent.path, sent.query) == (wanted.method, wanted.path, wanted.query)
    assert sent.body == wanted.body == EVENT
    assert _without(sent.headers, OF_THE_MOMENT) == _without(
        wanted.headers, OF_THE_MOMENT | ATTEMPTS
    )
    assert _signed_headers(sent) == _signed_headers(wanted) - ATTEMPTS


async def test_the_signature_is_the_one_that_aws_defines(recorder: Recorder) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    function = LambdaFunction(settings(), Inline())
    assert (await function.invoke(EVENT)).kind == "done"
    function.close()
    (sent,) = recorder.arrived
    assert sent.headers["authorization"] == _authorization(sent)
    assert sent.headers["x-amz-security-token"] == TOKEN
    assert {"host", "x-amz-date", "x-amz-security-token"} <= _signed_headers(sent)
    signed_at = datetime.strptime(sent.headers["x-amz-date"], "%Y%m%dT%H%M%S%z")
    assert before <= signed_at <= datetime.now(UTC)


async def test_every_event_has_a_signature_of_its_own(recorder: Recorder) -> None:
    function = LambdaFunction(settings(), Inline())
    for index in range(3):
        await function.invoke(f'{{"actor_index":{index}}}'.encode())
    function.close()
    assert [sent.body[-2:-1] for sent in recorder.arrived] == [b"0", b"1", b"2"]
    assert all(sent.headers["authorization"] == _authorization(sent) for sent in recorder.arrived)


async def test_credentials_that_end_are_renewed_between_two_requests(recorder: Recorder) -> None:
    keys = iter(("first", "second", "third"))

    def metadata() -> dict[str, str]:
        ends = datetime.now(UTC) + timedelta(seconds=1)  # due for renewal at once
        return {
            "access_key": next(keys),
            "secret_key": SECRET,
            "token": TOKEN,
            "expiry_time": ends.isoformat(),
        }

    class Ending(CredentialProvider):
        METHOD = "ending"

        def load(self) -> RefreshableCredentials:
            return RefreshableCredentials.create_from_metadata(
                metadata(), refresh_using=metadata, method=self.METHOD
            )

    session = botocore.session.get_session()
    session.get_component("credential_provider").insert_before("env", Ending())
    client = boto3.Session(botocore_session=session).client("lambda", region_name=REGION)
    requests = InvokeRequests(client, session, settings(), Inline(), name="nitro-actor")
    scopes = [(await requests.signed(EVENT)).headers["Authorization"] for _ in range(2)]
    requests.close()
    assert ["Credential=second/" in scopes[0], "Credential=third/" in scopes[1]] == [True, True]


class Held(Inline):
    """Calls that are made when the test lets them."""

    def __init__(self) -> None:
        self.calls = 0
        self.let = asyncio.Event()

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.calls += 1
        await self.let.wait()
        return call(*args, **kwargs)


async def test_a_key_is_used_while_it_is_renewed_until_ten_minutes_before_its_end(
    recorder: Recorder,
) -> None:
    begin = datetime.now(UTC)
    clock, keys = [begin], iter(("second", "third"))

    def metadata() -> dict[str, str]:
        ends = (clock[0] + timedelta(hours=1)).isoformat()
        return {
            "access_key": next(keys),
            "secret_key": SECRET,
            "token": TOKEN,
            "expiry_time": ends,
        }

    class Hourly(CredentialProvider):
        METHOD = "hourly"

        def load(self) -> RefreshableCredentials:
            return RefreshableCredentials(
                "first",
                SECRET,
                TOKEN,
                begin + timedelta(hours=1),
                metadata,
                self.METHOD,
                time_fetcher=lambda: clock[0],
            )

    session = botocore.session.get_session()
    session.get_component("credential_provider").insert_before("env", Hourly())
    client = boto3.Session(botocore_session=session).client("lambda", region_name=REGION)
    threads = Held()
    requests = InvokeRequests(client, session, settings(), threads, name="nitro-actor")

    async def key() -> str:
        signed = (await requests.signed(EVENT)).headers["Authorization"]
        return signed.partition("Credential=")[2].partition("/")[0]

    assert (await key(), threads.calls) == ("first", 0)
    clock[0] += timedelta(minutes=48)
    assert [await key(), await key()] == ["first", "first"]
    threads.let.set()
    await asyncio.sleep(0.01)
    assert (await key(), threads.calls) == ("second", 1)
    threads.let.clear()
    clock[0] += timedelta(minutes=51)
    waiting = [asyncio.ensure_future(key()) for _ in range(3)]
    done, _ = await asyncio.wait(waiting, timeout=0.05)
    assert not done
    threads.let.set()
    assert (await asyncio.gather(*waiting), threads.calls) == (["third"] * 3, 2)
    requests.close()


@pytest.mark.parametrize("name", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
async def test_certificates_are_checked_against_the_file_that_boto3_takes(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    for each in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(each, raising=False)
    port = int(recorder.url.rpartition(":")[2])
    with tls_front(tmp_path, host="127.0.0.1", port=port) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", f"https://127.0.0.1:{front.port}")
        unknown = LambdaFunction(settings(), Inline())
        assert "CERTIFICATE_VERIFY_FAILED" in (await unknown.invoke(EVENT)).reason
        monkeypatch.setenv(name, str(front.certificate))
        function = LambdaFunction(settings(), Inline())
        assert (await function.invoke(EVENT)).kind == "done"
        for made in (unknown, function):
            made.close()


@pytest.mark.parametrize(
    ("surroundings", "told"),
    [
        ({"HTTPS_PROXY": "http://user:secret@proxy:1"}, True),
        ({"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": ".amazonaws.com"}, False),
        ({"HTTP_PROXY": "http://proxy:1"}, False),
    ],
)
def test_a_proxy_that_would_apply_to_invoke_is_told_to_be_unused(
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    surroundings: dict[str, str],
    told: bool,
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL_LAMBDA")
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in surroundings.items():
        monkeypatch.setenv(name, value)
    function = LambdaFunction(settings(), Inline())
    assert function.problems.keys() == ({"invoke_proxy"} if told else set())
    assert "secret" not in str(function.problems)
    function.close()


async def test_without_an_override_it_goes_to_the_regions_endpoint(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL_LAMBDA")
    session = botocore.session.get_session()
    client = boto3.Session(botocore_session=session).client("lambda", region_name=REGION)
    url = (
        await InvokeRequests(client, session, settings(), Inline(), name="nitro-actor").signed(
            EVENT
        )
    ).url
    assert url.startswith(
        "https://lambda.eu-west-1.amazonaws.com/2015-03-31/functions/nitro-actor/"
    )


async def test_without_credentials_nothing_is_sent_or_billed(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    function = LambdaFunction(settings(), Inline())
    execution = await function.invoke(EVENT)
    function.close()
    assert (execution.kind, execution.requests, execution.billed_s) == ("failed", 0, 0.0)
    assert "NoCredentialsError" in execution.reason
    assert (execution.sent_at, recorder.arrived) == (None, [])


async def test_credentials_that_cannot_be_renewed_send_and_bill_nothing(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [
        ClientError({"Error": {"Code": "ExpiredToken", "Message": "too old"}}, "AssumeRole"),
        FileNotFoundError("token file"),
    ]
    function = LambdaFunction(settings(), Inline())
    for refusal in refusals:

        def refuse(*_: object, refusal: Exception = refusal) -> NoReturn:
            raise refusal

        monkeypatch.setattr(InvokeRequests, "signed", refuse)
        execution = await function.invoke(EVENT)
        assert (execution.kind, execution.requests, execution.billed_s) == ("failed", 0, 0.0)
        assert type(refusal).__name__ in execution.reason
    function.close()
    assert recorder.arrived == []


async def test_an_answer_from_something_in_between_is_a_failure_with_its_status(
    recorder: Recorder,
) -> None:
    recorder.status, recorder.answer = 502, b"<html>Bad Gateway</html>"
    function = LambdaFunction(settings(), Inline())
    execution = await function.invoke(EVENT)
    function.close()
    # It may have come after the function ran.
    assert (execution.kind, execution.requests, execution.billed_s) == ("failed", 1, None)
    assert "502" in execution.reason


def _without(headers: dict[str, str], names: set[str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in names}


def _signed_headers(request: Arrived) -> set[str]:
    fields = request.headers["authorization"].split(", ")
    (names,) = (f.removeprefix("SignedHeaders=") for f in fields if f.startswith("SignedHeaders="))
    return set(names.split(";"))


def _authorization(request: Arrived) -> str:
    """Work the header out from what arrived, step by step as AWS documents it.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
    """
    names = sorted(_signed_headers(request))
    query = urlencode(sorted(parse_qsl(request.query)), quote_via=quote)
    canonical = "\n".join(
        [
            request.method,
            quote(request.path),
            query,
            *(f"{name}:{request.headers[name].strip()}" for name in names),
            "",
            ";".join(names),
            hashlib.sha256(request.body).hexdigest(),
        ]
    )
    moment = request.headers["x-amz-date"]
    scope = [moment[:8], REGION, "lambda", "aws4_request"]
    to_sign = "\n".join(
        [
            "AWS4-HMAC-SHA256",
            moment,
            "/".join(scope),
            hashlib.sha256(canonical.encode()).hexdigest(),
        ]
    )
    key = f"AWS4{SECRET}".encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    return (
        f"AWS4-HMAC-SHA256 Credential={KEY}/{'/'.join(scope)}, "
        f"SignedHeaders={';'.join(names)}, Signature={signature}"
    )
