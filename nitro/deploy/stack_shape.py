"""What the AWS stack consists of, as far as quotas and prices go: the `nitro` object of `cdk.json`.

The CDK app checks that object and knows every field of it; here are the few that cost money or need
a quota, with the same defaults, so that the command line works where the CDK is not installed.
"""

import json
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nitro.errors import CommandError
from shared.money.prices import AWS_US_EAST_1_2026_11, CacheEngine, OwnPrices, PriceTable

CONFIG_KEY = "nitro"


class StackShape(BaseModel):
    """Sizes of one deployment."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    region: str | None = None
    """Region to deploy to; unset means that of the credentials at hand."""
    actor_memory_mb: Annotated[int, Field(ge=128)] = 1024
    """Memory of one actor."""
    availability_zones: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Zones of the VPC; unset means the region's first two."""
    actor_concurrency: Annotated[int, Field(ge=1)] | None = None
    """Concurrency reserved for actors; unset means that they share what nobody has reserved."""
    provisioned_concurrency: Annotated[int, Field(ge=0)] = 64
    """Actors kept warm while jobs run."""
    cache_node_type: str = "cache.t4g.medium"
    """Size of the trajectory cache."""
    cache_engine: CacheEngine = "redis"
    """Engine of the trajectory cache."""
    scaler_cpu: Annotated[int, Field(ge=1)] = 256
    """CPU units of the scaler, 1,024 to a core."""
    scaler_memory_mb: Annotated[int, Field(ge=1)] = 512
    """Memory of the scaler."""
    learner_instance_types: Annotated[tuple[str, ...], Field(min_length=1)] = (
        "p3.2xlarge",
        "g6.2xlarge",
        "g5.2xlarge",
        "g4dn.2xlarge",
    )
    """Machines for the learner, first choice first."""
    prices: OwnPrices | None = None
    """What bills and budgets go by; unset means the list prices of us-east-1."""

    @property
    def price_table(self) -> PriceTable:
        """What bills and budgets go by."""
        return self.prices or AWS_US_EAST_1_2026_11


def read_shape(path: Path) -> StackShape:
    """Return the shape `cdk.json` asks for; the default one without that file.

    Raises:
        CommandError: The file cannot be read, or a field of it is malformed.
    """
    if not path.exists():
        return StackShape()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return StackShape.model_validate(content.get("context", {}).get(CONFIG_KEY, {}))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise CommandError(f"{path}: context.{CONFIG_KEY}.{field}: {first['msg']}") from None
    except (OSError, ValueError, AttributeError) as error:
        raise CommandError(f"{path}: cannot be read as a CDK configuration: {error}") from error
