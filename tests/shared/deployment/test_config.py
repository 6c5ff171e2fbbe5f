"""What the context may ask for, and how it is told what is wrong."""

import pytest

from shared.deployment.config import (
    AccountAnswer,
    ConfigError,
    NitroConfig,
    check_concurrency,
    read_account,
    read_config,
)
from shared.deployment.machines import num_gpus
from shared.money.prices import AWS_US_EAST_1_2026_11 as PRICES
from tests.own_prices import FRANKFURT


def test_nothing_said_is_the_papers_setup() -> None:
    config = read_config({})

    assert config.learner_instance_types == (
        "p3.2xlarge",
        "g6.2xlarge",
        "g5.2xlarge",
        "g4dn.2xlarge",
    )
    assert (config.actor_memory_mb, config.actor_timeout_s) == (1024, 60)
    assert config.provisioned_concurrency == 64
    assert (config.cache_engine, config.cache_node_type) == ("valkey", "cache.t4g.micro")
    assert not config.retain_runs


def test_every_field_says_what_it_is() -> None:
    without = [n for n, f in NitroConfig.model_fields.items() if not f.description]
    assert without == []


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"cache_nod_type": "x"}, "cache_nod_type: no such field; known: name, account"),
        ({"actor_memory_mb": 64}, "actor_memory_mb: Input should be greater than or equal to 128"),
        ({"actor_memory_mb": "1024"}, "actor_memory_mb: Input should be a valid integer"),
        ({"actor_timeout_s": 901}, "actor_timeout_s: Input should be less than or equal to 900"),
        ({"name": "Nitro"}, "name: String should match pattern"),
        ({"name": "a" * 21}, "name: String should have at most 20 characters"),
        ({"cache_engine": "memcached"}, "cache_engine: Input should be 'redis' or 'valkey'"),
        ({"cache_node_type": "cache.m1.tiny"}, "cache_node_type: 'cache.m1.tiny' is unknown"),
        ({"endpoint": "http"}, "endpoint: Input should be 'https', 'iam' or 'none'"),
        ({"learner_instance_types": ["g6.2xlarge"] * 2}, "names a type twice"),
        ({"learner_instance_types": ["x9.huge"]}, "x9.huge"),
        ({"learner_instance_types": ["c5.4xlarge"]}, "'c5.4xlarge' is no GPU machine"),
        (
            {"learner_instance_types": ["g6.2xlarge", "g6.xlarge"]},
            "learner_memory_mb (24576) does not fit into a g6.xlarge, which leaves 15237",
        ),
        (
            {"learner_instance_types": ["g6.12xlarge", "g6.2xlarge"]},
            "all need the same number of GPUs, but g6.12xlarge has 4, g6.2xlarge has 1",
        ),
        ({"learner_ami": "latest"}, "learner_ami: String should match pattern"),
        ({"availability_zones": ["eu-west-3a"]}, "availability_zones"),
        ({"availability_zones": ["eu-west-3a"] * 2}, "availability_zones: names a zone twice"),
        ({"availability_zones": ["euw3-az1", "euw3-az3"]}, "availability_zones.0: String should"),
        (
            {
                "account": "123456789012",
                "region": "eu-west-1",
                "availability_zones": ["eu-west-3a", "eu-west-3c"],
            },
            "availability_zones: eu-west-3a, eu-west-3c are not in eu-west-1",
        ),
        ({"vpc_cidr": "10.0.0.0/8"}, "vpc_cidr: String should match pattern"),
        ({"vpc_cidr": "10.640.0.0/20"}, "vpc_cidr: Octet 640 (> 255) not permitted"),
        ({"log_retention_days": 2}, "log_retention_days: Input should be 1, 3, 5"),
        ({"alarm_email": "nobody"}, "alarm_email: String should match pattern"),
        ({"account": "123456789012"}, "account and region: set both, or neither"),
        *(
            ({"account": "123456789012", "region": region}, f"region: {region} is in a partition")
            for region in ("us-gov-west-1", "cn-north-1", "us-iso-east-1", "us-isob-east-1")
        ),
        ({"build_args": {"HTTP_PROXY": "x"}}, "build_args.HTTP_PROXY"),
        (
            {"provisioned_concurrency": 300, "actor_concurrency": 200},
            "provisioned_concurrency (300) exceeds actor_concurrency (200)",
        ),
        ({"scaler_cpu": 1024}, "scaler_memory_mb (512) is too small for scaler_cpu (1024)"),
        ("{", "context `nitro` must be an object, got '{'"),
        ('{"endpoint": 1}', "endpoint: Input should be"),
        ([], "context `nitro` must be an object, got []"),
        (None, "context `nitro` must be an object, got None"),
    ],
)
def test_a_wrong_field_is_named(raw: object, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_config(raw)
    assert message in str(refused.value)


def test_every_wrong_field_is_named_at_once() -> None:
    with pytest.raises(ConfigError, match=r"actor_memory_mb.*endpoint.*colour"):
        read_config({"actor_memory_mb": 1, "endpoint": "ftp", "colour": "red"})


def test_everything_that_can_be_billed_can_be_chosen() -> None:
    for node_type in PRICES.cache_usd_per_hour["redis"]:
        assert read_config({"cache_node_type": node_type}).cache_memory_mb > 300
    for kind in PRICES.learner_usd_per_hour.keys() - {"c5.4xlarge"}:
        config = read_config({"learner_instance_types": [kind], "learner_memory_mb": 12_288})
        assert config.learner_instance_types == (kind,)


@pytest.mark.parametrize(
    ("kinds", "gpus"),
    [(("g6.2xlarge", "g5.xlarge"), 1), (("g6.12xlarge", "g5.12xlarge"), 4), (("p3.8xlarge",), 4)],
)
def test_a_learner_has_all_gpus_of_its_machine(kinds: tuple[str, ...], gpus: int) -> None:
    config = read_config({"learner_instance_types": list(kinds), "learner_memory_mb": 12_288})
    assert {num_gpus(kind) for kind in config.learner_instance_types} == {gpus}


def test_the_account_takes_machines_off_the_list_and_keeps_its_order() -> None:
    config = read_config({})
    offered = AccountAnswer(offered_instance_types=frozenset({"g4dn.2xlarge", "g6.2xlarge"}))
    assert config.learner_types(offered) == ("g6.2xlarge", "g4dn.2xlarge")
    assert config.learner_types(read_account(None)) == config.learner_instance_types  # not asked
    assert config.learner_types(AccountAnswer(offered_instance_types=frozenset())) == ()


def test_a_malformed_record_of_the_account_is_refused() -> None:
    with pytest.raises(ConfigError, match="run `nitro doctor --aws` again"):
        read_account({"lambda_concurrency": "many"})


@pytest.mark.parametrize(("limit", "fits"), [(None, True), (300, True), (299, False), (10, False)])
def test_no_more_concurrency_is_reserved_than_the_account_can_spare(
    limit: int | None, fits: bool
) -> None:
    account = AccountAnswer(lambda_concurrency=limit)
    check_concurrency(read_config({}), account)  # reserves nothing
    config = read_config({"actor_concurrency": 200})
    if fits:
        check_concurrency(config, account)
        return
    with pytest.raises(ConfigError, match="L-B99A9384"):
        check_concurrency(config, account)


def test_prices_of_ones_own_are_what_machines_are_chosen_by() -> None:
    kinds = {"learner_instance_types": ["g6.2xlarge"]}
    config = read_config({**kinds, "prices": FRANKFURT})
    assert config.price_table.learner_usd_per_hour["g6.2xlarge"] == 1.25
    assert read_config(kinds).price_table == PRICES
    with pytest.raises(ConfigError, match=r"'frankfurt' has no price for 'p3.2xlarge'"):
        read_config({"prices": FRANKFURT})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"region": None}, "prices.region: Input should be a valid string, got None"),
        ({"lambda_usd": 1}, "prices.lambda_usd: no such field; known: name, region, date"),
        ({"name": "paper"}, "prices.name: 'paper' is a table that Nitro comes with"),
        ({"date": ...}, "prices.date: is missing"),
    ],
)
def test_a_wrong_price_is_named(changes: dict[str, object], message: str) -> None:
    prices = {k: v for k, v in {**FRANKFURT, **changes}.items() if v is not ...}
    with pytest.raises(ConfigError) as refused:
        read_config({"prices": prices})
    assert message in str(refused.value)
    assert "made up" not in str(refused.value), "the whole table is no help"
