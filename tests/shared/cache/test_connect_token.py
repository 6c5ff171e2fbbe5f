"""The signature against the AWS SDK's own signer."""

from datetime import UTC, datetime, timedelta, timezone
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from shared.cache.connect_token import LIFETIME_S, AwsCredentials, connect_token


def sdk_token(credentials: AwsCredentials, *, cache_name: str, user: str, region: str) -> str:
    """Return the SDK's token as of now."""
    request = AWSRequest(
        "GET", f"https://{cache_name}/", params={"Action": "connect", "User": user}
    )
    key = Credentials(
        credentials.access_key, credentials.secret_key, token=credentials.session_token
    )
    SigV4QueryAuth(key, "elasticache", region, expires=900).add_auth(request)
    assert request.url is not None
    return request.url.removeprefix("https://")


def signed_at(token: str) -> datetime:
    (date,) = parse_qs(urlsplit(f"//{token}").query)["X-Amz-Date"]
    return datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)


@pytest.mark.parametrize("session_token", [None, "FwoGZXIvYXdzE/+==//~ü"])
@pytest.mark.parametrize("user", ["nitro-actor", "a b&c=d/é"])
def test_it_is_what_the_sdk_signs(session_token: str | None, user: str) -> None:
    credentials = AwsCredentials(
        access_key="AKIDEXAMPLE", secret_key="wJalr/+bPxRfi", session_token=session_token
    )
    expected = sdk_token(credentials, cache_name="nitro-cache", user=user, region="eu-west-1")
    now = signed_at(expected)
    for clock in (now, now.astimezone(timezone(timedelta(hours=-9)))):
        token = connect_token(
            credentials, cache_name="nitro-cache", user=user, region="eu-west-1", now=clock
        )
        assert token == expected


def test_it_lives_for_fifteen_minutes_and_differs_from_one_second_to_the_next() -> None:
    key = AwsCredentials(access_key="A", secret_key="S")
    start = datetime(2026, 2, 28, 23, 59, 59, tzinfo=UTC)
    tokens = [
        connect_token(key, cache_name="c", user="u", region="r", now=start + timedelta(seconds=s))
        for s in range(3)
    ]
    assert len(set(tokens)) == 3
    assert all(f"X-Amz-Expires={LIFETIME_S}" in token for token in tokens)
    assert [signed_at(token).day for token in tokens] == [28, 1, 1]


def test_credentials_do_not_show_what_is_secret() -> None:
    shown = repr(AwsCredentials(access_key="A", secret_key="hunter2", session_token="hunter3"))
    assert "hunter" not in shown
