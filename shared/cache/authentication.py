"""Authentication at the trajectory cache: none, by password or by IAM.

All processes that connect use the same settings. With IAM no secret is stored anywhere. Each
connection signs a new password, which takes less time than its handshake, so no password can be
stale after an environment was frozen.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Literal, Self
from urllib.parse import urlsplit

import redis
from pydantic import SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from redis.credentials import CredentialProvider, UsernamePasswordCredentialProvider

from shared.cache.connect_token import AwsCredentials, connect_token


class CredentialsError(redis.RedisError):
    """No AWS credentials are available to sign a cache password."""


class CacheSettings(BaseSettings):
    """Cache settings of every process."""

    # Errors end up in logs, and a refused value may contain a password.
    model_config = SettingsConfigDict(hide_input_in_errors=True, use_attribute_docstrings=True)

    cache_url: SecretStr = SecretStr("redis://127.0.0.1:6379/0")
    """Trajectory cache, `redis://` or `rediss://` (TLS); secret because it may hold a password."""
    cache_auth: Literal["none", "password", "iam"] = "none"
    """How to log in: with what the URL holds, with `cache_password`, or with a password signed by
    AWS credentials."""
    cache_user: str | None = None
    """User of the cache; required by `iam`, where user name and user id are the same."""
    cache_password: SecretStr | None = None
    """Password that `password` logs in with."""
    cache_name: str | None = None
    """Replication group id that an IAM password is signed for."""
    cache_region: str = "us-east-1"
    """AWS region of the cache, which an IAM password is signed for."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        required = {
            "none": (),
            "password": ("cache_password",),
            "iam": ("cache_user", "cache_name"),
        }
        for name in required[self.cache_auth]:
            if not getattr(self, name):
                raise ValueError(
                    f"NITRO_CACHE_AUTH is {self.cache_auth}: NITRO_{name.upper()} must be set too"
                )
        url = self.cache_url.get_secret_value()
        if self.cache_auth != "none" and "@" in urlsplit(url).netloc:
            raise ValueError(
                f"NITRO_CACHE_AUTH is {self.cache_auth}: take user and password out of "
                "NITRO_CACHE_URL, or set NITRO_CACHE_AUTH=none"
            )
        if self.cache_auth == "iam" and not url.startswith("rediss://"):
            raise ValueError(
                "NITRO_CACHE_AUTH is iam, which needs TLS: NITRO_CACHE_URL must begin with rediss://"
            )
        return self

    def cache_credentials(
        self, aws_credentials: Callable[[], AwsCredentials]
    ) -> CredentialProvider | None:
        """Return the credentials of a connection; None uses those in the cache URL.

        Only `iam` calls `aws_credentials`, once per connection, for the signing key.
        """
        if self.cache_auth == "password" and self.cache_password is not None:
            return UsernamePasswordCredentialProvider(
                self.cache_user, self.cache_password.get_secret_value()
            )
        if self.cache_auth == "iam" and self.cache_user and self.cache_name:
            return IamCredentialProvider(
                aws_credentials,
                cache_name=self.cache_name,
                user=self.cache_user,
                region=self.cache_region,
            )
        return None


@dataclass(frozen=True)
class IamCredentialProvider(CredentialProvider):
    """Signs a password whenever redis-py opens a connection."""

    aws_credentials: Callable[[], AwsCredentials]
    _: KW_ONLY
    cache_name: str
    user: str
    region: str
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def get_credentials(self) -> tuple[str, str]:
        """Return user and password.

        Raises:
            CredentialsError: No signing key is available.
        """
        token = connect_token(
            self.aws_credentials(),
            cache_name=self.cache_name,
            user=self.user,
            region=self.region,
            now=self.now(),
        )
        return self.user, token
