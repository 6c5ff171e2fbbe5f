"""ElastiCache's IAM password: a presigned `connect` request, shown to the server but never sent.

The server checks its signature as AWS would check the request's. Signing needs a clock, a key and
hashes, but no network and no SDK, so an actor that can reach only the cache can sign. The signature
is Version 4 with its parameters in the query string; the SDK's signer is the test's oracle.
"""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote

LIFETIME_S = 900
"""Lifetime of a token: the longest that ElastiCache accepts."""
_SERVICE = "elasticache"
_ALGORITHM = "AWS4-HMAC-SHA256"
_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsCredentials:
    """An access key; its secrets stay out of logs."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def connect_token(
    credentials: AwsCredentials, *, cache_name: str, user: str, region: str, now: datetime
) -> str:
    """Return the password for `user` of the cache `cache_name`, valid for 15 minutes from `now`."""
    timestamp = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{timestamp[:8]}/{region}/{_SERVICE}/aws4_request"
    parameters = {
        "Action": "connect",
        "User": user,
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key}/{scope}",
        "X-Amz-Date": timestamp,
        "X-Amz-Expires": str(LIFETIME_S),
        "X-Amz-SignedHeaders": "host",
    }
    if credentials.session_token is not None:
        parameters["X-Amz-Security-Token"] = credentials.session_token
    canonical = "\n".join(
        ("GET", "/", _query(sorted(parameters.items())), f"host:{cache_name}", "", "host")
    )
    request_digest = hashlib.sha256(f"{canonical}\n{_EMPTY_SHA256}".encode()).hexdigest()
    to_sign = "\n".join((_ALGORITHM, timestamp, scope, request_digest))
    key = f"AWS4{credentials.secret_key}".encode()
    for part in (timestamp[:8], region, _SERVICE, "aws4_request"):
        key = _hmac(key, part)
    signature = _hmac(key, to_sign).hex()
    return f"{cache_name}/?{_query(parameters.items())}&X-Amz-Signature={signature}"


def _query(parameters: Iterable[tuple[str, str]]) -> str:
    return "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in parameters)


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
