"""The actor's settings: the only place where it reads environment variables."""

from typing import Annotated

from pydantic import Field, FiniteFloat, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Read once, when an execution environment starts."""

    model_config = SettingsConfigDict(
        env_prefix="NITRO_", frozen=True, use_attribute_docstrings=True
    )

    cache_url: SecretStr
    """Trajectory cache, `redis://` or `rediss://`; secret, as it may hold a password."""
    cache_timeout_s: Annotated[FiniteFloat, Field(gt=0)] = 10.0
    """Longest wait for a connection to the cache and for the answer to one command."""
    initialization_type: Annotated[
        str, Field(validation_alias="AWS_LAMBDA_INITIALIZATION_TYPE")
    ] = "on-demand"
    """Set by Lambda: `provisioned-concurrency` for environments started ahead of any call."""
