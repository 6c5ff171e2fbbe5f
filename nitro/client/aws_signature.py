"""AWS signatures of requests, for an API behind API Gateway's IAM authoriser.

The authoriser wants Signature Version 4 in the `Authorization` header; the token travels in a
header of its own. The SDK signs and finds the credentials, but is only needed
here, so it is imported here.
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
    "NITRO_SIGN_FOR: there are no usable AWS credentials to sign with ({why}): sign in "
    "(`aws sso login`), or set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)
_SIGNED = frozenset({"content-type", "idempotency-key", "x-nitro-token"})
"""Headers that are ours, and nothing on the way may change; host and date are always signed."""


class AwsSignature(httpx.Auth):
    """Signs each request as it leaves, body and all."""

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
            # Temporary credentials are renewed here when they are about to end.
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
