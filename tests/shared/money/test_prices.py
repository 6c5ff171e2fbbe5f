"""Price tables against the numbers of their sources, written down a second time."""

import pytest
from pydantic import ValidationError

from shared.money.prices import (
    AWS_US_EAST_1_2026_11,
    AWS_US_EAST_1_2026_11_ARM64,
    PAPER,
    PRICE_TABLES,
    RETIRED_INSTANCES,
    OwnPrices,
    PriceTable,
)
from tests.own_prices import FRANKFURT


def test_the_papers_prices_are_those_of_its_footnotes() -> None:
    assert PAPER.lambda_usd_per_gb_s == 0.0000166667
    assert PAPER.provisioned_usd_per_gb_s == 0.0000041667
    assert PAPER.provisioned_duration_usd_per_gb_s == 0.0000097222
    assert PAPER.learner_usd_per_s("p3.2xlarge") * 3600 == pytest.approx(3.06)
    assert PAPER.learner_usd_per_s("c5.4xlarge") * 3600 == pytest.approx(0.68)
    # What the paper does not bill is free.
    assert PAPER.lambda_usd_per_request == 0
    assert PAPER.cache_usd_per_s("none", "redis") == 0
    assert PAPER.fargate_usd_per_s(vcpu=1, memory_gb=2) == 0


def test_requests_and_the_scaler_cost_what_aws_asks_for_a_million_and_for_a_month() -> None:
    assert AWS_US_EAST_1_2026_11.lambda_usd_per_request * 1_000_000 == pytest.approx(0.20)
    monthly = AWS_US_EAST_1_2026_11.fargate_usd_per_s(vcpu=0.25, memory_gb=0.5) * 3600 * 730
    assert monthly == pytest.approx(0.25 * 29.55 + 0.5 * 3.245, rel=1e-3)


def test_provisioned_concurrency_pays_above_sixty_percent_use() -> None:
    table = AWS_US_EAST_1_2026_11
    break_even = table.provisioned_usd_per_gb_s / (
        table.lambda_usd_per_gb_s - table.provisioned_duration_usd_per_gb_s
    )
    assert break_even == pytest.approx(0.6, abs=0.001)


def test_on_arm64_functions_and_fargate_cost_a_fifth_less_and_nothing_else_does() -> None:
    usual, arm64 = AWS_US_EAST_1_2026_11.model_dump(), AWS_US_EAST_1_2026_11_ARM64.model_dump()
    differing = {name for name in usual if usual[name] != arm64[name]} - {"name", "source"}
    assert differing == {
        "lambda_usd_per_gb_s",
        "provisioned_usd_per_gb_s",
        "provisioned_duration_usd_per_gb_s",
        "fargate_usd_per_vcpu_hour",
        "fargate_usd_per_gb_hour",
    }
    for name in differing:
        assert arm64[name] == pytest.approx(0.8 * usual[name], rel=2e-3)


def test_every_table_is_dated_sourced_and_names_what_it_knows() -> None:
    for name, table in PRICE_TABLES.items():
        assert table.name == name
        assert table.source
        assert len(table.date) == 7
        assert table.learner_usd_per_hour.keys() & RETIRED_INSTANCES >= {"p3.2xlarge"}
        with pytest.raises(ValueError, match=r"'p9.huge'.*known:.*p3.2xlarge"):
            table.learner_usd_per_s("p9.huge")


def test_a_table_of_ones_own_is_whole_and_has_a_name_of_its_own() -> None:
    assert OwnPrices.model_validate(FRANKFURT).learner_usd_per_s("g6.2xlarge") * 3600 == 1.25
    for field in (name for name, of in PriceTable.model_fields.items() if of.is_required()):
        with pytest.raises(ValidationError, match=field):
            OwnPrices.model_validate({k: v for k, v in FRANKFURT.items() if k != field})
    for name in PRICE_TABLES:
        with pytest.raises(ValidationError, match=f"'{name}' is a table that Nitro comes with"):
            OwnPrices.model_validate({**FRANKFURT, "name": name})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("date", "2026"),
        ("date", "2026-13"),
        ("region", "Frankfurt"),
        ("source", ""),
        ("name", "a b"),
        ("lambda_usd_per_gb_s", -1e-9),
        ("lambda_usd_per_gb_s", "1.25"),
        ("lambda_usd_per_gb_s", float("nan")),
        ("learner_usd_per_hour", {"g6.2xlarge": float("inf")}),
        ("learner_usd_per_month", 900.0),
        ("cache_usd_per_hour", {"memcached": {}}),
        ("source", "x" * 501),
    ],
)
def test_nonsense_in_it_is_named(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        OwnPrices.model_validate({**FRANKFURT, field: value})


def test_valkey_costs_a_fifth_less_than_redis() -> None:
    table = AWS_US_EAST_1_2026_11
    assert table.cache_usd_per_s("cache.t4g.medium", "redis") * 3600 == pytest.approx(0.065)
    prices = table.cache_usd_per_hour
    assert prices["redis"].keys() == prices["valkey"].keys()
    for node, usd in prices["valkey"].items():
        assert usd == pytest.approx(0.8 * prices["redis"][node], rel=0.001)
    with pytest.raises(ValueError, match=r"\(redis\).*'cache.x'"):
        table.cache_usd_per_s("cache.x", "redis")
