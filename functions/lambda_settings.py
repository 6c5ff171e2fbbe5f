"""Settings of every Lambda function that uses the cache, read from the environment."""

from typing import Annotated, TypeVar

from pydantic import Field, FiniteFloat, SecretStr
from pydantic_settings import SettingsConfigDict

from shared.cache.authentication import CacheSettings, CredentialsError
from shared.cache.connect_token import AwsCredentials
from shared.cache.connection import CacheConnection

C = TypeVar("C", bound=CacheConnection)


class LambdaSettings(CacheSettings):
    """Read once, when an execution environment starts."""

    model_config = SettingsConfigDict(
        env_prefix="NITRO_", frozen=True, use_attribute_docstrings=True
    )

    cache_url: SecretStr
    """Trajectory cache; without a default, as nothing useful runs inside a Lambda environment."""
    cache_timeout_s: Annotated[FiniteFloat, Field(gt=0)] = 10.0
    """Longest wait for a connection to the cache and for the answer to one command."""
    initialization_type: Annotated[
        str, Field(validation_alias="AWS_LAMBDA_INITIALIZATION_TYPE")
    ] = "on-demand"
    """Set by Lambda: `provisioned-concurrency` for environments started ahead of any call."""
    aws_access_key_id: Annotated[str | None, Field(validation_alias="AWS_ACCESS_KEY_ID")] = None
    """Set by Lambda, as are the next two: the credentials of the function's role."""
    aws_secret_access_key: Annotated[
        SecretStr | None, Field(validation_alias="AWS_SECRET_ACCESS_KEY")
    ] = None
    aws_session_token: Annotated[SecretStr | None, Field(validation_alias="AWS_SESSION_TOKEN")] = (
        None
    )

    def aws_credentials(self) -> AwsCredentials:
        """Return the credentials of the function's role.

        Raises:
            CredentialsError: The environment holds none.
        """
        if self.aws_access_key_id is None or self.aws_secret_access_key is None:
            raise CredentialsError(
                "NITRO_CACHE_AUTH is iam, but AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not "
                "set: Lambda sets them for a function with a role"
            )
        token = self.aws_session_token
        return AwsCredentials(
            access_key=self.aws_access_key_id,
            secret_key=self.aws_secret_access_key.get_secret_value(),
            session_token=None if token is None else token.get_secret_value(),
        )

    def cache(self, kind: type[C]) -> C:
        """Return a client of the cache; nothing is sent yet.

        Raises:
            CacheError: The cache's URL is malformed.
        """
        return kind(
            self.cache_url.get_secret_value(),
            timeout_s=self.cache_timeout_s,
            credentials=self.cache_credentials(self.aws_credentials),
        )

    @property
    def starts_cold(self) -> bool:
        """Whether the first invocation waited for this environment to start."""
        return self.initialization_type != "provisioned-concurrency"
