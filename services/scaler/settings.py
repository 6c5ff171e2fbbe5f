"""The scaler's settings, read from the environment once at start."""

import math
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from shared.cache.authentication import CacheSettings
from shared.contracts.learner_kind import LearnerKind, MachineKind
from shared.deployment.machines import DEFAULT_CACHE_ENGINE, DEFAULT_CACHE_NODE
from shared.money.costs import CostBasis
from shared.money.prices import PRICE_TABLES, CacheEngine, OwnPrices

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Settings(CacheSettings):
    """Scaler settings; the variable of a field is `NITRO_` plus its name in capitals."""

    model_config = SettingsConfigDict(
        env_prefix="NITRO_", frozen=True, extra="ignore", use_attribute_docstrings=True
    )

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """Port to listen on; 0 takes a free one and logs it."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe log line that is written."""

    token: SecretStr | None = None
    """Bearer token callers must present."""
    token_file: Path | None = None
    """File that holds the token; read once at start. `NITRO_TOKEN` takes precedence."""
    viewer_token: SecretStr | None = None
    """A second, read-only token; unset means that there is none."""
    viewer_token_file: Path | None = None
    """File that holds it; read once at start. `NITRO_VIEWER_TOKEN` takes precedence."""
    auth: Literal["token", "disabled"] = "token"
    """`disabled` lets anybody who reaches the port spend money."""

    store: Literal["sqlite", "dynamodb"] = "sqlite"
    """Where jobs, rounds and ledger are kept: `database` or `table`."""
    database: Path = Path("runs/nitro.sqlite3")
    """SQLite file of jobs, rounds and ledger; its folder is made if missing."""
    table: str | None = None
    """DynamoDB table, in `lambda_region`, with keys `pk` and `sk`: `NITRO_STORE=dynamodb` keeps the
    jobs in it, and the dead-man switch finds the heartbeat there."""
    runs_dir: Path = Path("runs")
    """Folder of the runs' artifacts; deleting a job deletes its folder in here."""
    artifacts: str | None = None
    """Where the runs' artifacts are, a folder or `s3://bucket/prefix` in `lambda_region`; unset
    means `runs_dir`."""
    logs: Path | None = None
    """Folder of the local system's log files, whose lines about a job can be viewed."""
    log_groups: dict[Literal["learner", "scaler", "actor"], str] = {}
    """Log groups in CloudWatch, in `lambda_region`, by their source; as JSON."""
    cache_memory_mb: Annotated[int, Field(ge=1)] = 1024
    """The cache's `maxmemory`: a job whose round cannot fit is refused."""

    lambda_endpoint_url: str | None = None
    """Lambda API of an emulator; unset means AWS."""
    lambda_token: SecretStr | None = None
    """Token of that emulator; AWS credentials of the process are never sent to it."""
    lambda_token_file: Path | None = None
    """File that holds it; read once at start."""
    lambda_region: str = "us-east-1"
    """AWS region of the actor function."""
    lambda_function: str = "nitro-actor"
    """Name or ARN of the actor function."""
    lambda_qualifier: str = "live"
    """Alias that is invoked; provisioned concurrency applies to it, never to `$LATEST`."""
    lambda_memory_mb: Annotated[int, Field(ge=128, le=10240)] = 1024
    """Memory of the actor function (paper: 1,024)."""
    lambda_timeout_s: Seconds = 60.0
    """Time-out of the actor function."""
    gradient_function: str = "nitro-gradient"
    """Name or ARN of the function that computes gradients, for jobs with `learner: functions`."""
    gradient_memory_mb: Annotated[int, Field(ge=128, le=10240)] = 1769
    """Memory of the gradient function; 1,769 MB is one full core."""
    gradient_timeout_s: Seconds = 15.0
    """Time-out of the gradient function."""
    gradient_pool_size: Annotated[int, Field(ge=1, le=1000)] = 64
    """Most of its invocations in flight at once, of all jobs."""
    lambda_read_timeout_s: Seconds = 75.0
    """Longest wait for an invocation. It must exceed the function's time-out: otherwise live actors
    would be given up and started again. Time in an emulator's queue counts."""
    lambda_connect_timeout_s: Seconds = 5.0
    """How long connecting to the Lambda API may take."""
    invoke_pool_size: Annotated[int, Field(ge=1, le=3000)] = 1000
    """Most invocations in flight at once, AWS's default concurrency limit; each holds a
    connection, made when first needed. A larger round waits for its first actors to end."""
    throttled_s: Seconds = 15.0
    """How long a throttled invocation is retried before it counts as failed."""
    throttle_pause_s: Seconds = 0.2
    """Longest first pause after a throttle. It doubles up to 3 s; each pause is drawn at random
    below that. Lambda's `Retry-After` is added."""
    cold_starts_per_s: Annotated[float, Field(gt=0)] = math.inf
    """Most environments that launches may start in a second; warm ones do not count."""
    shutdown_wait_s: Seconds = 20.0
    """How long shutdown waits for invocations in flight."""
    account_limit_ttl_s: Seconds = 300.0
    """How long the concurrency limit is cached."""
    environment_ttl_s: Seconds = 300.0
    """How long an actor's description of an environment is cached: its image may be replaced."""
    readiness_every_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 10.0
    """How long `GET /readyz` relies on a check that found cache, store and Lambda."""
    provisioned_concurrency: Annotated[int, Field(ge=0, le=3000)] = 0
    """Most environments kept warm while jobs run; 0 is off (paper: 64). A job keeps no more than
    its scaling policy can still ask for."""
    keep_alive: bool = True
    """Whether idle environments of jobs with `warm: reuse` or `auto` are pinged. On one machine no
    environment is removed, and pings would only delay actors."""
    ping_every_s: Seconds = 240.0
    """Interval of the pings. Lambda promises nothing; environments were seen to be removed after
    five to seven idle minutes."""
    lambda_reserved_concurrency: Annotated[int, Field(ge=1)] | None = None
    """Concurrency reserved for the actor function, which limits rounds and warm environments. Unset
    means it shares the account's unreserved concurrency, of which 100 are never kept warm."""
    ecs_cluster: str | None = None
    """ECS cluster in which each job gets its own learner, as a task. If unset, learners are
    permanent."""
    ecs_cpu_family: str | None = None
    """Family of the tasks of learners without a GPU, which run on Fargate."""
    ecs_gpu_family: str | None = None
    """Family of the tasks of learners with a GPU. If it is unset in a cluster, jobs that want a GPU
    are refused."""
    ecs_gpu_provider: str | None = None
    """Capacity provider of the machines for learners with a GPU."""
    ecs_subnets: tuple[str, ...] = ()
    """Subnets of the learners' tasks, as JSON."""
    ecs_gpu_subnets: tuple[str, ...] = ()
    """Subnets of the tasks of learners with a GPU, as JSON."""
    ecs_security_group: str | None = None
    """Security group of the learners' tasks."""
    most_cpu_learners: Annotated[int, Field(ge=1)] = 50
    """Most learners without a GPU at a time, if they are started for jobs; other jobs wait in
    order. Each takes Fargate vCPUs of the account's quota (L-3032A538)."""
    most_gpu_learners: Annotated[int, Field(ge=1)] = 1
    """The same for learners with a GPU, each on its own machine (quota L-DB2E81BA)."""
    functions_share_cores: bool = False
    """Whether functions run on the learner's own cores, as on one machine. Jobs whose learner has
    own actors then use only these."""
    reconcile_every_s: Seconds = 60.0
    """How often capacity is compared with the jobs without an event."""
    longest_job_s: Seconds = 172_800.0
    """Longest time a job may run at once, if `NITRO_ECS_CLUSTER` is set. Then it is stopped, and
    its capacity is turned off."""

    client_grace_s: Seconds = 60.0
    """How long an `external` job waits for its client, before its first lease and after a lost one.
    Then it is stopped, and its capacity is turned off."""
    learner_wait_s: Seconds = 1800.0
    """Longest wait of a job for the learner that was started for it, if `NITRO_ECS_CLUSTER` is set.
    Then it fails. It also fails if three learners end without taking it. Time without room for its
    learner does not count."""

    lease_ttl_s: Seconds = 30.0
    """A learner that is silent this long loses its job."""
    heartbeat_every_s: Seconds = 5.0
    """Interval of a learner's heartbeats."""
    max_attempts: Annotated[int, Field(ge=1, le=10)] = 2
    """Most launches of a round under one lease."""
    quorum_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Least part of a round's actors; with fewer the round is not used."""
    deadline_slack_s: Seconds = 10.0
    """Added to twice the function's time-out, a round's deadline."""
    learner_allowance_s: Seconds = 60.0
    """Time for update, curvature and checkpoint in a round's price before launch. Twice the longest
    measured time replaces it, if that is more."""
    finish_wait_s: Annotated[float, Field(ge=0, le=30)] = 2.0
    """How long the end of a job, and the preview of a round, wait for the outcome of its last
    invocations."""

    price_table: str = "aws-us-east-1-2026-11"
    """Prices of the ledger."""
    prices: OwnPrices | None = None
    """Prices of the ledger as JSON, instead of `price_table`: another region's, or discounted."""
    learner_instance: str = "g6.2xlarge"
    """EC2 type the learner with a GPU is billed as."""
    cpu_learner_vcpu: Annotated[float, Field(ge=0)] = 2.0
    """Fargate size the learner without a GPU is billed as."""
    cpu_learner_memory_gb: Annotated[float, Field(ge=0)] = 4.0
    """Fargate memory the learner without a GPU is billed as."""
    gpu_learner_memory_gb: Annotated[float, Field(gt=0)] = 24.0
    """Memory of the learner with a GPU, which replays of jobs have to fit."""
    cache_node: str = DEFAULT_CACHE_NODE
    """ElastiCache type the cache is billed as; `none` is free."""
    cache_engine: CacheEngine = DEFAULT_CACHE_ENGINE
    """Engine the cache is billed as."""
    scaler_vcpu: Annotated[float, Field(ge=0)] = 0.25
    """Fargate size the scaler is billed as."""
    scaler_memory_gb: Annotated[float, Field(ge=0)] = 0.5
    """Fargate memory the scaler is billed as."""
    cold_start_s: Annotated[float, Field(ge=0, le=60)] = 2.0
    """Assumed time of a new environment on AWS from its request to its handler: half a
    second to start, a second and a half to load the actor at its share of a core."""
    show_processes: bool = False
    """Whether `GET /v1/system` shows the process that started the scaler, and all its children."""
    ledger_clock: Literal["wall", "projected"] = "projected"
    """`wall` bills time that passed (on AWS); `projected` bills the time the same rounds would
    take on AWS (on one machine)."""

    @field_validator("token", "viewer_token")
    @classmethod
    def _token_is_something(cls, token: SecretStr | None) -> SecretStr | None:
        if token is not None and not token.get_secret_value().strip():
            raise ValueError("is empty; unset it or give it a value")
        return token

    @field_validator("price_table")
    @classmethod
    def _known_prices(cls, name: str) -> str:
        if name not in PRICE_TABLES:
            raise ValueError(f"{name!r} is unknown; known: {', '.join(sorted(PRICE_TABLES))}")
        return name

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.lambda_read_timeout_s <= self.lambda_timeout_s:
            raise ValueError(
                f"NITRO_LAMBDA_READ_TIMEOUT_S ({self.lambda_read_timeout_s:g}) must exceed "
                f"NITRO_LAMBDA_TIMEOUT_S ({self.lambda_timeout_s:g})"
            )
        if self.heartbeat_every_s >= self.lease_ttl_s:
            raise ValueError(
                f"NITRO_HEARTBEAT_EVERY_S ({self.heartbeat_every_s:g}) must be below "
                f"NITRO_LEASE_TTL_S ({self.lease_ttl_s:g})"
            )
        self._require_whole_tasks()
        if self.store == "dynamodb" and not self.table:
            raise ValueError("NITRO_STORE is dynamodb: NITRO_TABLE must name the table")
        self.cost_basis()
        return self

    def _require_whole_tasks(self) -> None:
        given = [
            {bool(value) for value in values}
            for values in (
                (self.ecs_cluster, self.ecs_cpu_family, self.ecs_subnets, self.ecs_security_group),
                (self.ecs_gpu_family, self.ecs_gpu_provider, self.ecs_gpu_subnets),
            )
        ]
        half = any(len(either) > 1 for either in given)
        if half or (self.ecs_gpu_family is not None and self.ecs_cluster is None):
            raise ValueError(
                "set NITRO_ECS_CLUSTER, NITRO_ECS_CPU_FAMILY, NITRO_ECS_SUBNETS and "
                "NITRO_ECS_SECURITY_GROUP, or none of them; with a GPU NITRO_ECS_GPU_FAMILY, "
                "NITRO_ECS_GPU_PROVIDER and NITRO_ECS_GPU_SUBNETS, too"
            )

    @property
    def ecs_families(self) -> dict[MachineKind, str]:
        """Task family of each kind of learner that is started for jobs."""
        families: dict[MachineKind, str | None] = {
            "gpu": self.ecs_gpu_family,
            "cpu": self.ecs_cpu_family,
        }
        return {kind: family for kind, family in families.items() if family is not None}

    @property
    def learners(self) -> dict[LearnerKind, str]:
        """The billed machine of each kind of learner, in words."""
        size = f"{self.cpu_learner_vcpu:g} vCPU and {self.cpu_learner_memory_gb:g} GB"
        return {
            "gpu": self.learner_instance,
            "cpu": f"Fargate task of {size}",
            "external": "program of your own, which is not billed",
        }

    @property
    def artifact_location(self) -> str:
        """Where the runs' artifacts are: a folder or an S3 prefix."""
        return self.artifacts or str(self.runs_dir)

    @property
    def allowed_job_s(self) -> float:
        """Longest time a job may run at once; unbounded if its learner is not billed."""
        return self.longest_job_s if self.starts_learners else math.inf

    @property
    def starts_learners(self) -> bool:
        """Whether learners exist only while there is work for them."""
        return self.ecs_cluster is not None

    @property
    def has_gpu(self) -> bool:
        """Whether there is a learner for jobs that need a GPU."""
        return self.ecs_gpu_family is not None or not self.starts_learners

    def cost_basis(self) -> CostBasis:
        """Return the basis of a job's bill.

        Raises:
            ValueError: The price table lacks the learner or cache type.
        """
        prices = self.prices or PRICE_TABLES[self.price_table]
        try:
            learner_usd_per_s = prices.learner_usd_per_s(self.learner_instance)
        except ValueError as error:
            raise ValueError(f"NITRO_LEARNER_INSTANCE: {error}") from None
        try:
            cache_usd_per_s = prices.cache_usd_per_s(self.cache_node, self.cache_engine)
        except ValueError as error:
            raise ValueError(f"NITRO_CACHE_NODE: {error}") from None
        return CostBasis(
            prices=prices,
            learner_usd_per_s=learner_usd_per_s,
            shares_cores=self.functions_share_cores,
            cpu_learner_usd_per_s=prices.fargate_usd_per_s(
                vcpu=self.cpu_learner_vcpu, memory_gb=self.cpu_learner_memory_gb
            ),
            cache_usd_per_s=cache_usd_per_s,
            scaler_usd_per_s=prices.fargate_usd_per_s(
                vcpu=self.scaler_vcpu, memory_gb=self.scaler_memory_gb
            ),
            memory_mb=self.lambda_memory_mb,
            function_timeout_s=self.lambda_timeout_s,
            provisioned=self.provisioned_concurrency,
            cold_start_s=self.cold_start_s,
            ping_every_s=self.ping_every_s,
            gradient_memory_mb=self.gradient_memory_mb,
            gradient_timeout_s=self.gradient_timeout_s,
        )
