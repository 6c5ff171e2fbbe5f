"""AWS signatures of requests, for an API behind API Gateway's IAM authoriser.

The authoriser requires Signature Version 4 in the `Authorization` header; the token has a separate
header. The SDK signs and finds the credentials. It is imported here because nothing else needs it.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

import httpx

from nitro.errors import CommandError

if TYPE_CHECKING:
    from botocore.credentials import Credentials

_SERVICE = "execute-api"
_NO_SDK = "NITRO_SIGN_FOR needs AWS's SDK: `pip install boto3`, or install Nitro's extra `local`"
_NO_CREDENTIALS = (
    "NITRO_SIGN_FOR: no usable AWS credentials to sign with ({why}): sign in (`aws sso login`), or "
    "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)
_SIGNED = frozenset({"content-type", "idempotency-key", "x-nitro-token"})
"""Our own headers, which no proxy may change; host and date are always signed."""


class AwsSignature(httpx.Auth):
    """Signs each outgoing request, including its body."""

    requires_request_body = True

    def __init__(self, region: str) -> None:
        """Find the credentials.

        Args:
            region: AWS region of the API.

        Raises:
            CommandError: The SDK or the credentials are missing.
        """
        self._region = region
        self._credentials = _credentials()

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add date, signature and, with temporary credentials, their session token."""
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import BotoCoreError

        headers = {name: value for name, value in request.headers.items() if name in _SIGNED}
        signed = AWSRequest(request.method, str(request.url), data=request.content, headers=headers)
        try:
            # This renews temporary credentials that are about to expire.
            key = self._credentials.get_frozen_credentials()
        except BotoCoreError as error:
            raise CommandError(_NO_CREDENTIALS.format(why=error)) from error
        SigV4Auth(key, _SERVICE, self._region).add_auth(signed)
        request.headers.update(dict(signed.headers.items()))
        yield request


def _credentials() -> "Credentials":
    try:
        import botocore.session
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise CommandError(_NO_SDK) from None
    try:
        found = botocore.session.get_session().get_credentials()
    except BotoCoreError as error:
        raise CommandError(_NO_CREDENTIALS.format(why=error)) from error
    if found is None:
        raise CommandError(_NO_CREDENTIALS.format(why="none were found"))
    return found
