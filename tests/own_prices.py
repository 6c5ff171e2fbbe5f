"""A price table as an operator elsewhere would give it; its numbers are nobody's."""

from shared.money.prices import AWS_US_EAST_1_2026_11

FRANKFURT: dict[str, object] = {
    **AWS_US_EAST_1_2026_11.model_dump(mode="json"),
    "name": "frankfurt",
    "region": "eu-central-1",
    "source": "made up",
    "learner_usd_per_hour": {"g6.2xlarge": 1.25, "g5.2xlarge": 1.5},
    "cache_usd_per_hour": {
        "redis": {"cache.t4g.micro": 0.02, "cache.t4g.medium": 0.08},
        "valkey": {"cache.t4g.micro": 0.015, "cache.t4g.medium": 0.06},
    },
}
