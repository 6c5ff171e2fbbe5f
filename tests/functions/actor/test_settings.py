"""What the actor is told by its environment."""

import pytest
from pydantic import ValidationError

from functions.actor.settings import Settings
from shared.cache.authentication import CredentialsError, IamCredentialProvider
from shared.cache.connect_token import AwsCredentials

_CACHE = {
    "NITRO_CACHE_URL": "rediss://cache:6379/0",
    "NITRO_CACHE_AUTH": "iam",
    "NITRO_CACHE_USER": "nitro-actor",
    "NITRO_CACHE_NAME": "nitro",
    "NITRO_CACHE_REGION": "eu-west-1",
}
_ROLE = {
    "AWS_ACCESS_KEY_ID": "AKID",
    "AWS_SECRET_ACCESS_KEY": "secret-of-a-role",
    "AWS_SESSION_TOKEN": "session",
}


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*_CACHE, *_ROLE):
        monkeypatch.delenv(name, raising=False)


def environment(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return Settings()


def test_it_signs_cache_passwords_with_the_credentials_lambda_gives_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = environment(monkeypatch, **_CACHE, **_ROLE)
    assert settings.aws_credentials() == AwsCredentials(
        access_key="AKID", secret_key="secret-of-a-role", session_token="session"
    )
    provider = settings.cache_credentials(settings.aws_credentials)
    assert isinstance(provider, IamCredentialProvider)
    user, token = provider.get_credentials()
    assert user == "nitro-actor"
    assert token.startswith("nitro/?Action=connect&User=nitro-actor&")
    assert "AKID%2F" in token
    assert "secret-of-a-role" not in repr(settings)


def test_without_a_role_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = environment(monkeypatch, **_CACHE)
    with pytest.raises(CredentialsError, match="AWS_ACCESS_KEY_ID"):
        settings.aws_credentials()


def test_the_cache_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError, match="cache_url"):
        environment(monkeypatch)


@pytest.mark.parametrize("name", ["cache_timeout_s", "step_timeout_s"])
def test_a_time_is_more_than_nothing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(ValidationError, match=name):
        environment(monkeypatch, **_CACHE, **{f"NITRO_{name.upper()}": "0"})


def test_a_refusal_does_not_quote_what_may_be_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {**_CACHE, "NITRO_CACHE_URL": "rediss://user:hunter2@cache:6379/0"}
    with pytest.raises(ValidationError, match="NITRO_CACHE_URL") as refusal:
        environment(monkeypatch, **variables)
    assert "hunter2" not in str(refusal.value)
