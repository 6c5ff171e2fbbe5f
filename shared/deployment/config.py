"""The options of a deployment: the validated `nitro` object of the CDK context.

The defaults are the paper's set-up where AWS still offers it, and otherwise the cheapest reasonable
choice.
"""

import contextlib
import json
import re
from collections.abc import Mapping
from ipaddress import IPv4Network
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from shared.deployment.machines import (
    DEFAULT_CACHE_ENGINE,
    DEFAULT_CACHE_NODE,
    num_gpus,
    task_memory_mb,
    usable_memory_mb,
)
from shared.deployment.zones import NUM_ZONES, WITHOUT_VPC_LINKS, first_zones
from shared.money.prices import (
    AWS_US_EAST_1_2026_11,
    AWS_US_EAST_1_2026_11_ARM64,
    CacheEngine,
    OwnPrices,
    PriceTable,
)

CONTEXT_KEY = "nitro"
ACCOUNT_CONTEXT_KEY = "nitro:account"
UNRESERVED_CONCURRENCY = 100
"""Part of an account's concurrency that functions cannot reserve."""

_OTHER_PARTITION = re.compile(r"(us-gov|cn|us-iso[a-z]?|eu-isoe)-")
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$", max_length=20)]
BuildArgument = Literal[
    "BASE_IMAGE",
    "ENVIRONMENT_PACKAGES",
    "ENVIRONMENT_REQUIREMENTS",
    "PIP_ARGS",
    "TORCH_BUILD",
    "TORCH_INDEX_URL",
]
Zone = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$")]
InstanceType = Annotated[str, Field(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$")]


class ConfigError(ValueError):
    """The context's options are invalid; the message names field and fix."""


class AccountAnswer(BaseModel):
    """Findings of `nitro doctor --aws` about the account, recorded in the CDK context."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    offered_instance_types: frozenset[str] | None = None
    """EC2 types of our list that the account can start; None if not queried."""
    lambda_concurrency: int | None = None
    """The account's limit of concurrent executions; None if not queried."""
    zone_ids: dict[str, str] | None = None
    """Ids of the region's zones by their names in the account; None if not queried."""


class NitroConfig(BaseModel):
    """One deployment."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )

    name: Name = "nitro"
    """Name of the stack and prefix of the cache and its users; two deployments need two names."""
    account: Annotated[str, Field(pattern=r"^\d{12}$")] | None = None
    """Account to deploy to; unset means the credentials' account."""
    region: Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")] | None = None
    """Region to deploy to; unset means the credentials' region."""
    availability_zones: tuple[Zone, Zone] | None = None
    """The two zones of the VPC, for good, actors and cache in the first. Unset means the region's
    first two, without those that API Gateway has no way into if the account was asked."""
    vpc_cidr: Annotated[str, Field(pattern=r"^\d+(\.\d+){3}/(1[6-9]|2[0-2])$")] = "10.64.0.0/20"
    """Addresses of the VPC, /16 to /22, for good; choose others only to peer it with a network of
    yours."""

    architecture: Literal["x86_64", "arm64"] = "x86_64"
    """Processors of actors, scaler and the learner on cores. `arm64` costs a fifth less; its images
    are built on such a machine, or under emulation. A GPU machine stays x86_64."""
    actor_memory_mb: Annotated[int, Field(ge=128, le=10_240)] = 1024
    """Memory of one actor (paper: 1,024); Lambda gives CPU in proportion, one core at 1,769."""
    actor_timeout_s: Annotated[int, Field(ge=1, le=900)] = 60
    """Longest rollout of one actor (paper: 60)."""
    actor_concurrency: Annotated[int, Field(ge=1, le=3000)] | None = None
    """Most actors at once, whatever the jobs ask for: reserved for them and a cap on what a runaway
    can cost. Unset means that they share what the account's functions have not reserved, which
    every account can deploy."""
    provisioned_concurrency: Annotated[int, Field(ge=0, le=3000)] = 64
    """Most actors kept warm, at a price by the second, and only while jobs run that want it (`warm:
    provisioned`, or `auto` where it pays; paper: 64). 0 leaves all jobs to reuse."""

    cache_engine: CacheEngine = DEFAULT_CACHE_ENGINE
    """Engine of the trajectory cache; `valkey` is 20 % cheaper than `redis`."""
    cache_node_type: str = DEFAULT_CACHE_NODE
    """Size of the cache; the smallest has room for every preset. A job whose round does not fit is
    refused; the message names a sufficient size."""

    scaler_cpu: Literal[256, 512, 1024] = 256
    """CPU units of the scaler, 1,024 to a core."""
    scaler_memory_mb: Literal[512, 1024, 2048] = 512
    """Memory of the scaler; Fargate wants at least two megabytes to a CPU unit."""

    learner_instance_types: tuple[InstanceType, ...] = (
        "p3.2xlarge",
        "g6.2xlarge",
        "g5.2xlarge",
        "g4dn.2xlarge",
    )
    """GPU machines for the learner, first choice first (paper: p3.2xlarge). All have as many GPUs:
    the learner has a rank on each, and its task asks for all of them. An empty list leaves out that
    learner: jobs that want a GPU are refused."""
    learner_memory_mb: Annotated[int, Field(ge=2048)] = 24_576
    """Memory the learner is placed with; must fit the smallest machine of the list."""
    learner_disk_gb: Annotated[int, Field(ge=50, le=1000)] = 100
    """Encrypted disk of the learner's machine; images and scratch, no results."""
    cpu_learner_vcpu: Literal[2, 4] = 2
    """Cores of the learner without a GPU, a Fargate task, unless the job's `learner_task` says
    otherwise. Its updates use two at most."""
    cpu_learner_memory_mb: Literal[4096, 8192, 16_384] = 4096
    """Memory of the learner without a GPU; Fargate wants at least two gigabytes to a core."""
    most_cpu_learners: Annotated[int, Field(ge=1, le=500)] = 50
    """Most jobs at once that learn without a GPU, each in a Fargate task of its own; the others
    wait in order. New accounts have a quota of few vCPUs (L-3032A538)."""
    most_gpu_learners: Annotated[int, Field(ge=1, le=20)] = 1
    """The same with a GPU: each has a machine of its own."""
    learner_ami: Annotated[str, Field(pattern=r"^ami-[0-9a-f]{8,17}$")] | None = None
    """Machine image of the learner; unset means AWS's current ECS GPU image, looked up by SSM."""
    longest_job_hours: Annotated[int, Field(ge=1, le=240)] = 48
    """Longest a job may keep capacity on at a time; then it is stopped and can be resumed."""
    learner_wait_minutes: Annotated[int, Field(ge=10, le=2880)] = 30
    """Longest a job waits for the learner that was started for it; then it has failed and can be
    resumed. Raise it where GPU machines are scarce. Waiting for other jobs does not count."""

    endpoint: Literal["https", "iam", "none"] = "https"
    """How users reach the API: HTTPS with the token, HTTPS that also asks for an IAM signature, or
    no public endpoint and port forwarding through Session Manager."""
    requests_per_s: Annotated[int, Field(ge=1, le=10_000)] = 50
    """Requests per second that the endpoint accepts on average; twice as many in a burst."""

    log_retention_days: Literal[1, 3, 5, 7, 14, 30, 60, 90, 180, 365] = 30
    """How long logs are kept."""
    alarm_email: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+$")] | None = None
    """E-mail address for notifications of alarms and the budget; unset: they are only displayed."""
    monthly_budget_usd: Annotated[int, Field(ge=1)] = 100
    """Spend of the whole account above which the budget alarm is raised."""
    prices: OwnPrices | None = None
    """Prices of bills and budgets: a whole table as in `shared/money/prices.py`, with name,
    region, date and source; unset means the list prices of us-east-1."""
    build_args: dict[BuildArgument, str] = Field(default_factory=dict)
    """Build arguments of the images, such as another BASE_IMAGE; see the Dockerfiles."""
    retain_runs: bool = False
    """Whether runs and jobs survive `make destroy`."""

    @property
    def cache_memory_mb(self) -> int:
        """Capacity of the cache, without the part that ElastiCache reserves."""
        return usable_memory_mb(self.cache_node_type)

    @property
    def price_table(self) -> PriceTable:
        """Prices of bills and budgets."""
        if self.prices is not None:
            return self.prices
        listed = {"x86_64": AWS_US_EAST_1_2026_11, "arm64": AWS_US_EAST_1_2026_11_ARM64}
        return listed[self.architecture]

    def learner_types(self, account: AccountAnswer) -> tuple[str, ...]:
        """Return the machines to request, in our order; empty means no learner with a GPU."""
        offered = account.offered_instance_types
        if offered is None:
            return self.learner_instance_types
        return tuple(kind for kind in self.learner_instance_types if kind in offered)

    def zones(self, account: AccountAnswer) -> tuple[str, ...] | None:
        """Return the zones of the VPC by name; None leaves the first two to CloudFormation.

        Raises:
            ConfigError: A configured zone has no VPC links, or fewer than two of the region have.
        """
        ids, linked = account.zone_ids, self.endpoint != "none"
        if ids is None:
            return self.availability_zones
        named = self.availability_zones
        if named is None:
            zones = first_zones(ids, linked=linked)
            if len(zones) < NUM_ZONES:
                raise ConfigError(f"endpoint: API Gateway has no way into two of {', '.join(ids)}")
            return zones
        for zone in named:
            if linked and ids.get(zone) in WITHOUT_VPC_LINKS:
                raise ConfigError(
                    f"availability_zones: API Gateway has no way into {zone}, which is "
                    f"{ids[zone]}: name another one, or set endpoint to none"
                )
        return named

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        try:
            IPv4Network(self.vpc_cidr, strict=False)
        except ValueError as error:
            raise ValueError(f"vpc_cidr: {error}") from None
        if self.region is not None:
            check_partition(self.region)
        if (self.account is None) != (self.region is None):
            raise ValueError("account and region: set both, or neither")
        zones = self.availability_zones or ()
        if len(set(zones)) < len(zones):
            raise ValueError("availability_zones: names a zone twice")
        if self.region is not None and any(zone[:-1] != self.region for zone in zones):
            raise ValueError(f"availability_zones: {', '.join(zones)} are not in {self.region}")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        usable_memory_mb(self.cache_node_type)
        cap = self.actor_concurrency
        if cap is not None and self.provisioned_concurrency > cap:
            raise ValueError(
                f"provisioned_concurrency ({self.provisioned_concurrency}) exceeds "
                f"actor_concurrency ({cap}): lower it or raise the cap"
            )
        if self.scaler_memory_mb < 2 * self.scaler_cpu:
            raise ValueError(
                f"scaler_memory_mb ({self.scaler_memory_mb}) is too small for scaler_cpu "
                f"({self.scaler_cpu}): Fargate wants at least {2 * self.scaler_cpu}"
            )
        least_mb = 2048 * self.cpu_learner_vcpu
        if self.cpu_learner_memory_mb < least_mb:
            raise ValueError(
                f"cpu_learner_memory_mb ({self.cpu_learner_memory_mb}) is too small for "
                f"cpu_learner_vcpu ({self.cpu_learner_vcpu}): Fargate wants at least {least_mb}"
            )
        if len(set(self.learner_instance_types)) < len(self.learner_instance_types):
            raise ValueError("learner_instance_types: names a type twice")
        counts = {kind: num_gpus(kind) for kind in self.learner_instance_types}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{kind} has {count}" for kind, count in counts.items())
            raise ValueError(
                f"learner_instance_types: all need the same number of GPUs, but {told}"
            )
        for kind in self.learner_instance_types:
            self.price_table.learner_usd_per_s(kind)
            if self.learner_memory_mb > task_memory_mb(kind):
                raise ValueError(
                    f"learner_memory_mb ({self.learner_memory_mb}) does not fit into a {kind}, "
                    f"which leaves {task_memory_mb(kind)} to tasks: lower it, or take the type out "
                    "of learner_instance_types"
                )
        self.price_table.cache_usd_per_s(self.cache_node_type, self.cache_engine)
        return self


def read_config(raw: object) -> NitroConfig:
    """Return the configuration of a context object.

    Raises:
        ConfigError: A field is invalid; names every such field.
    """
    if isinstance(raw, str):
        # CDK does not parse the command line's `-c nitro={...}`.
        with contextlib.suppress(ValueError):
            raw = json.loads(raw)
    if not isinstance(raw, Mapping):
        raise ConfigError(f"context `{CONTEXT_KEY}` must be an object, got {raw!r}")
    try:
        return NitroConfig.model_validate_json(json.dumps(dict(raw)))
    except ValidationError as error:
        raise ConfigError(_what_is_wrong(error)) from None


def read_account(raw: object) -> AccountAnswer:
    """Return the account's answer; a missing answer counts as empty.

    Raises:
        ConfigError: The record is malformed.
    """
    if raw is None:
        return AccountAnswer()
    try:
        return AccountAnswer.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(
            f"context `{ACCOUNT_CONTEXT_KEY}`: {error.errors()[0]['msg']}; "
            "run `nitro doctor --aws` again"
        ) from None


def check_partition(region: str) -> None:
    """Refuse regions outside the commercial partition.

    Raises:
        ConfigError: The region is in another partition.
    """
    if _OTHER_PARTITION.match(region):
        raise ConfigError(
            f"region: {region} is in a partition of its own (GovCloud, China, secret regions), "
            "where AWS lacks parts of the stack; choose a commercial region"
        )


def check_concurrency(config: NitroConfig, account: AccountAnswer) -> None:
    """Refuse a cap that the account cannot reserve: CloudFormation would fail halfway.

    Raises:
        ConfigError: The account's limit is too low.
    """
    limit, cap = account.lambda_concurrency, config.actor_concurrency
    if limit is None or cap is None or cap <= limit - UNRESERVED_CONCURRENCY:
        return
    raise ConfigError(
        f"actor_concurrency ({cap}) cannot be reserved: the account allows "
        f"{limit} concurrent executions and {UNRESERVED_CONCURRENCY} must stay unreserved; lower "
        "actor_concurrency and provisioned_concurrency, leave actor_concurrency out, or request "
        "the Lambda quota L-B99A9384"
    )


def _what_is_wrong(error: ValidationError) -> str:
    lines = []
    for wrong in error.errors():
        field = ".".join(str(part) for part in wrong["loc"])
        if wrong["type"] == "extra_forbidden":
            fields = NitroConfig.model_fields if "." not in field else PriceTable.model_fields
            lines.append(f"{field}: no such field; known: {', '.join(fields)}")
        elif wrong["type"] == "missing":
            lines.append(f"{field}: is missing")
        elif field and wrong["type"] != "value_error":
            lines.append(f"{field}: {wrong['msg']}, got {wrong['input']!r}")
        else:
            text = wrong["msg"].removeprefix("Value error, ")
            lines.append(f"{field}: {text}" if field else text)
    return f"context `{CONTEXT_KEY}`: " + "; ".join(lines)
