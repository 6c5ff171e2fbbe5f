"""The learner's settings, read from the environment once at start."""

import socket
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AliasChoices, Field, SecretStr, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from shared.cache.authentication import CacheSettings
from shared.contracts.learner_kind import MachineKind
from shared.contracts.message import Identifier, JobId
from shared.environments.packages import PackageNames
from shared.service.http_client import is_address
from shared.service.tokens import read_token


class LearnerSettings(CacheSettings):
    """The settings of the learner process; variables are `NITRO_<FIELD>` in upper case."""

    model_config = SettingsConfigDict(
        env_prefix="NITRO_", frozen=True, use_attribute_docstrings=True, extra="ignore"
    )

    scaler_url: str = "http://127.0.0.1:8080"
    """Base URL of the scaler's REST API."""
    token: SecretStr | None = None
    """Bearer token for the scaler; wins over `token_file`."""
    token_file: Path | None = None
    """File that holds the token."""
    runs_dir: Path = Path("runs")
    """Parent folder of run folders."""
    artifacts: str | None = None
    """Where run folders are kept, a folder or `s3://bucket/prefix`; unset means `runs_dir`."""
    aws_region: Annotated[
        str | None, Field(validation_alias=AliasChoices("AWS_REGION", "AWS_DEFAULT_REGION"))
    ] = None
    """AWS region of the bucket; unset leaves it to the SDK's configuration."""
    host: str = "127.0.0.1"
    """Address of the health and metrics endpoints."""
    learner_port: Annotated[int, Field(ge=1, le=65535)] = 8081
    """Port of the health and metrics endpoints."""
    learner_id: Identifier = Field(
        default_factory=lambda known: f"learner-{socket.gethostname()}-{known['learner_port']}"
    )
    """Name of this learner in leases and logs. Running learners must have different names: a
    learner that asks for work gets the job leased in its name at once, without waiting for an
    earlier process's lease to expire.
    """
    learner_kind: MachineKind | None = None
    """Kind of jobs to request: `gpu` or `cpu`. Unset takes any, as on one machine."""
    job_id: JobId | None = None
    """The only job to train, of its kind; the learner ends with it. Unset: one job after the other.
    """
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of updates; `auto` uses a GPU if there is one."""
    torch_threads: Annotated[int, Field(ge=1, le=256)] = 1
    """CPU threads of one update; part of what must be equal for bit-identical policies. With one, a
    second process computes half of the update if there is a core, to the same bits; more threads
    gain less and slow down next to busy actors. With more, set OMP_WAIT_POLICY=passive.
    """
    learner_ranks: Annotated[int, Field(ge=1, le=16)] = 1
    """Processes that share the gradient steps of an update. On GPUs each has its own; on the CPU
    each has `torch_threads`. Part of what must be equal for bit-identical policies. With more than
    one there is no second process.
    """
    rank_start_timeout_s: Annotated[float, Field(gt=0)] = 180.0
    """Time-out for starting the other ranks, which load their libraries."""
    rank_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """How long ranks wait for a silent rank before the round is lost."""
    networks: PackageNames = ()
    """Makers of custom networks, as `module:name` or `file.py:name`: a job may name them as
    `own/module.name`, but never names anything to import.
    """
    scaler_patience_s: Annotated[float, Field(gt=0)] = 60.0
    """How long to retry an unreachable scaler before giving up the job."""
    max_reopenings: Annotated[int, Field(ge=0, le=10)] = 1
    """How often to reopen a round with too few trajectories before the job fails."""
    own_actors: Annotated[int, Field(ge=0, le=256)] | None = None
    """Own actor processes for jobs with `auto`; unset: one for each core. 0: none for any job."""
    own_actors_ahead: bool = False
    """Whether to start them with the learner, before the first job."""
    own_actor_variables: dict[str, str] = {}
    """Additional settings of these processes as JSON, for example `NITRO_ENVIRONMENT_PACKAGES`."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("scaler_url")
    @classmethod
    def _http(cls, url: str) -> str:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"scaler_url must start with http:// or https://, got {url!r}")
        if not is_address(url):
            raise ValueError(f"scaler_url must read http://host:port, got {url!r}")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _one_job_has_a_kind(self) -> Self:
        if self.job_id is not None and self.learner_kind is None:
            raise ValueError(
                "NITRO_JOB_ID needs NITRO_LEARNER_KIND, the kind of that job's learner"
            )
        return self

    @property
    def artifact_location(self) -> str:
        """Where run folders are kept: a folder or an S3 prefix."""
        return self.artifacts or str(self.runs_dir)

    def bearer_token(self) -> str | None:
        """Return the scaler token, or None without authentication.

        Raises:
            TokenError: The token or its file is unusable.
        """
        return read_token(self.token, self.token_file)
