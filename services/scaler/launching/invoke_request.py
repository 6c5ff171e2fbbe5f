"""Invoke requests: an event, a signature by botocore's signer, and a send on the loop.

A round has up to a thousand requests that differ only in their event. boto3 would build each from
its model of the API, check it, resolve the endpoint, call some thirty hooks and wait for the answer
on a thread. botocore's parser reads errors.

Invariant: requests equal boto3's, except for the headers in which boto3 counts its own attempts.
"""

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import botocore.session
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest, HeadersDict
from botocore.credentials import ReadOnlyCredentials, RefreshableCredentials
from botocore.exceptions import ClientError, NoCredentialsError
from botocore.httpsession import get_cert_path
from botocore.parsers import create_parser
from botocore.utils import get_environ_proxies

from services.scaler.launching.connections import Answer, Connections
from services.scaler.off_loop import OffLoop
from services.scaler.settings import Settings

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

_FIRST_ERROR = 300
"""HTTP status from which on boto3 raises."""
_MUST_RENEW_S = 600
"""A key is not used this close to its end. This is botocore's own limit; it renews from 15 minutes
before the end, while callers continue with the old key."""


class InvokeRequests:
    """Signs and sends invocations of one alias, and reads the errors."""

    def __init__(
        self,
        client: "LambdaClient",
        session: botocore.session.Session,
        settings: Settings,
        threads: OffLoop,
        *,
        name: str,
        may_send: Callable[[], bool] = lambda: True,
    ) -> None:
        """Send nothing yet. Temporary credentials are renewed on one of the threads."""
        self._region = client.meta.region_name
        function, alias = (quote(each, safe="") for each in (name, settings.lambda_qualifier))
        path = f"/2015-03-31/functions/{function}/invocations?Qualifier={alias}"
        self._url = f"{client.meta.endpoint_url.rstrip('/')}{path}"
        self._target = f"{urlsplit(self._url).path}?Qualifier={alias}"
        self._headers = {
            "X-Amz-Invocation-Type": "RequestResponse",
            "X-Amz-Log-Type": "Tail",
            "User-Agent": client.meta.config.user_agent,  # type: ignore[attr-defined] # no stub has it
        }
        self._threads = threads
        self._credentials = session.get_credentials()
        self._key: ReadOnlyCredentials | None = None
        """The newest key."""
        self._renewal: asyncio.Future[ReadOnlyCredentials] | None = None
        self._operation = client.meta.service_model.operation_model("Invoke")
        self._parser = create_parser("rest-json")
        self._connections = Connections(
            client.meta.endpoint_url,
            connect_timeout_s=settings.lambda_connect_timeout_s,
            read_timeout_s=settings.lambda_read_timeout_s,
            ca_file=_ca_file(session),
            may_send=may_send,
        )
        self.unused_proxy = _proxy_applies(client.meta.endpoint_url)
        """Whether the environment names a proxy for this address, which is not used."""

    async def signed(self, event: bytes) -> AWSPreparedRequest:
        """Return the request for one event, signed now.

        Raises:
            BotoCoreError: There are no credentials, or they cannot be renewed.
            ClientError: AWS refuses to renew them.
            OSError: The file they are renewed from cannot be read.
        """
        key = await self._current_key()
        request = AWSRequest("POST", self._url, headers=self._headers, data=event)
        SigV4Auth(key, "lambda", self._region).add_auth(request)
        return request.prepare()

    async def send(self, request: AWSPreparedRequest) -> Answer:
        """Send a signed request and wait for its whole answer.

        Raises:
            OSError: The connection failed, timed out or broke.
            ClientError: Lambda refused the request, or failed.
        """
        assert isinstance(request.body, bytes)
        headers = [(name, _text(value)) for name, value in request.headers.items()]
        answer = await self._connections.send("POST", self._target, headers, request.body)
        if answer.status >= _FIRST_ERROR:
            parts = {
                "status_code": answer.status,
                "headers": HeadersDict(answer.headers),
                "body": answer.body,
            }
            reply = self._operation.output_shape
            assert reply is not None
            raise ClientError(self._parser.parse(parts, reply), "Invoke")
        return answer

    def close(self) -> None:
        """Close idle connections."""
        self._connections.close()

    async def _current_key(self) -> ReadOnlyCredentials:
        """Return the key for signing; callers wait for its renewal only close to its end."""
        credentials = self._credentials
        if credentials is None:
            raise NoCredentialsError
        if not isinstance(credentials, RefreshableCredentials) or not credentials.refresh_needed():
            self._key = credentials.get_frozen_credentials()
            return self._key
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.ensure_future(
                self._threads.run(credentials.get_frozen_credentials)
            )
            self._renewal.add_done_callback(self._renewed)
        if self._key is not None and not credentials.refresh_needed(_MUST_RENEW_S):
            return self._key
        return await asyncio.shield(self._renewal)

    def _renewed(self, renewal: asyncio.Future[ReadOnlyCredentials]) -> None:
        # botocore logs failures; callers that wait for the renewal get the error.
        if not renewal.cancelled() and renewal.exception() is None:
            self._key = renewal.result()


def _ca_file(session: botocore.session.Session) -> str | None:
    """Return the certificates that boto3 checks AWS's against, by its own rule."""
    chosen = session.get_config_variable("ca_bundle")  # AWS_CA_BUNDLE, or the profile's
    return chosen or os.environ.get("REQUESTS_CA_BUNDLE") or get_cert_path(True)


def _proxy_applies(url: str) -> bool:
    return urlsplit(url).scheme in get_environ_proxies(url)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")
