"""AWS's prices, as dated tables with their sources.

A job's bill names its price table. `AWS_US_EAST_1_2026_11` holds the prices of us-east-1. In other
regions, or with a discount, the operator provides a table (`OwnPrices`). `PAPER` holds the prices
of the paper's cost model, for comparison with its figures.
"""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from shared.contracts.message import Identifier, Message, NonNegativeFloat

SECONDS_PER_HOUR = 3600.0

CacheEngine = Literal["redis", "valkey"]
"""Engine of an ElastiCache node; Valkey costs a fifth less."""

RETIRED_INSTANCES = frozenset({"p3.2xlarge", "p3.8xlarge"})
"""EC2 types that still have a price, but can no longer be started."""


class PriceTable(Message):
    """On-demand prices of one region at one date, in US dollars."""

    name: Identifier
    """The table's name in settings and bills."""
    region: Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")]
    date: Annotated[str, Field(pattern=r"^\d{4}-(0[1-9]|1[0-2])$")]
    """Month the prices were collected, as `YYYY-MM`."""
    source: Annotated[str, Field(min_length=1, max_length=500)]
    """Where the numbers come from."""
    lambda_usd_per_gb_s: NonNegativeFloat
    """Duration of an on-demand invocation."""
    lambda_usd_per_request: NonNegativeFloat
    provisioned_usd_per_gb_s: NonNegativeFloat
    """Provisioned concurrency while it is configured, used or not."""
    provisioned_duration_usd_per_gb_s: NonNegativeFloat
    """Duration of an invocation that ran on provisioned concurrency."""
    learner_usd_per_hour: dict[str, NonNegativeFloat]
    """By EC2 instance type: learners, and the actor machine of the serverful comparison."""
    cache_usd_per_hour: dict[CacheEngine, dict[str, NonNegativeFloat]]
    """By engine and ElastiCache node type."""
    fargate_usd_per_vcpu_hour: NonNegativeFloat
    fargate_usd_per_gb_hour: NonNegativeFloat
    public_ipv4_usd_per_hour: NonNegativeFloat
    """One public address, in use or not."""
    server_usd_per_hour: dict[str, NonNegativeFloat] = {}
    """By EC2 instance type: machines without a GPU, of the comparison with one server."""

    def learner_usd_per_s(self, instance_type: str) -> float:
        """Return the price of one second of a learner.

        Raises:
            ValueError: The table has no such instance type.
        """
        return _hourly(self.learner_usd_per_hour, instance_type, self.name) / SECONDS_PER_HOUR

    def server_usd_per_s(self, instance_type: str) -> float:
        """Return the price of one second of a server without a GPU.

        Raises:
            ValueError: The table has no such instance type.
        """
        return _hourly(self.server_usd_per_hour, instance_type, self.name) / SECONDS_PER_HOUR

    def cache_usd_per_s(self, node_type: str, engine: CacheEngine) -> float:
        """Return the price of one second of a cache node; the node type `none` is free.

        Raises:
            ValueError: The table has no such node type of that engine.
        """
        if node_type == "none":
            return 0.0
        prices = self.cache_usd_per_hour.get(engine, {})
        return _hourly(prices, node_type, f"{self.name} ({engine})") / SECONDS_PER_HOUR

    def fargate_usd_per_s(self, *, vcpu: float, memory_gb: float) -> float:
        """Return the price of one second of a Fargate task: the scaler's, or a learner's."""
        hourly = vcpu * self.fargate_usd_per_vcpu_hour + memory_gb * self.fargate_usd_per_gb_hour
        return hourly / SECONDS_PER_HOUR


AWS_US_EAST_1_2026_11 = PriceTable(
    name="aws-us-east-1-2026-11",
    region="us-east-1",
    date="2026-11",
    source=(
        "AWS Lambda, EC2, ElastiCache, Fargate and VPC on-demand price pages for us-east-1, "
        "x86_64, Linux; EC2 G instances as listed by public price catalogues in 2026-08; "
        "p3.8xlarge as it was listed last"
    ),
    lambda_usd_per_gb_s=0.0000166667,
    lambda_usd_per_request=0.20 / 1_000_000,
    provisioned_usd_per_gb_s=0.0000041667,
    provisioned_duration_usd_per_gb_s=0.0000097222,
    learner_usd_per_hour={
        "g4dn.xlarge": 0.526,
        "g4dn.2xlarge": 0.752,
        "g5.xlarge": 1.006,
        "g5.2xlarge": 1.212,
        "g5.12xlarge": 5.672,
        "g6.xlarge": 0.8048,
        "g6.2xlarge": 0.9776,
        "g6.12xlarge": 4.6016,
        "g6e.xlarge": 1.861,
        "p3.2xlarge": 3.06,
        "p3.8xlarge": 12.24,
        "c5.4xlarge": 0.68,
    },
    cache_usd_per_hour={
        "redis": {
            "cache.t4g.micro": 0.016,
            "cache.t4g.small": 0.032,
            "cache.t4g.medium": 0.065,
            "cache.r7g.large": 0.219,
        },
        "valkey": {
            "cache.t4g.micro": 0.0128,
            "cache.t4g.small": 0.0256,
            "cache.t4g.medium": 0.052,
            "cache.r7g.large": 0.1752,
        },
    },
    fargate_usd_per_vcpu_hour=0.04048,
    fargate_usd_per_gb_hour=0.004445,
    public_ipv4_usd_per_hour=0.005,
    server_usd_per_hour={
        "c7i.xlarge": 0.1785,
        "c7i.2xlarge": 0.357,
        "c7i.4xlarge": 0.714,
        "c7i.8xlarge": 1.428,
        "c7i.16xlarge": 2.856,
    },
)

AWS_US_EAST_1_2026_11_ARM64 = AWS_US_EAST_1_2026_11.model_copy(
    update={
        "name": "aws-us-east-1-2026-11-arm64",
        "source": (
            "AWS Lambda and Fargate on-demand price pages for us-east-1, arm64, Linux; the rest as "
            "in aws-us-east-1-2026-11"
        ),
        "lambda_usd_per_gb_s": 0.0000133334,
        "provisioned_usd_per_gb_s": 0.0000033334,
        "provisioned_duration_usd_per_gb_s": 0.0000077778,
        "fargate_usd_per_vcpu_hour": 0.03238,
        "fargate_usd_per_gb_hour": 0.00356,
    }
)
"""The same with functions and Fargate tasks on AWS's own processors, a fifth cheaper."""

PAPER = PriceTable(
    name="paper",
    region="us-east-2",
    date="2024-08",
    source=(
        "Yu et al., PVLDB 18(1), 2024, section 8.1, footnotes 2 and 3. The paper bills learner, "
        "Lambda duration and provisioned concurrency only: requests, cache and scaler are free here"
    ),
    lambda_usd_per_gb_s=0.0000166667,
    lambda_usd_per_request=0.0,
    provisioned_usd_per_gb_s=0.0000041667,
    provisioned_duration_usd_per_gb_s=0.0000097222,
    learner_usd_per_hour={"p3.2xlarge": 3.06, "c5.4xlarge": 0.68},
    cache_usd_per_hour={},
    fargate_usd_per_vcpu_hour=0.0,
    fargate_usd_per_gb_hour=0.0,
    public_ipv4_usd_per_hour=0.0,
)

PRICE_TABLES: dict[str, PriceTable] = {
    t.name: t for t in (AWS_US_EAST_1_2026_11, AWS_US_EAST_1_2026_11_ARM64, PAPER)
}


class OwnPrices(PriceTable):
    """A complete table from the operator.

    Nothing is taken from another table: a missing price would silently be another region's.
    """

    @field_validator("name")
    @classmethod
    def _named_apart(cls, name: str) -> str:
        if name in PRICE_TABLES:
            raise ValueError(f"{name!r} is a table that Nitro comes with; choose another")
        return name


def _hourly(prices: dict[str, float], kind: str, table: str) -> float:
    try:
        return prices[kind]
    except KeyError:
        raise ValueError(
            f"price table {table!r} has no price for {kind!r}; known: {', '.join(sorted(prices))}"
        ) from None
