import json

import pytest
from pydantic import ValidationError

from services.scaler.settings import Settings
from shared.service.serving import settings_text
from tests.own_prices import FRANKFURT


def test_the_defaults_are_consistent() -> None:
    basis = Settings().cost_basis()
    assert basis.learner_usd_per_s * 3600 == pytest.approx(0.9776)
    assert basis.memory_gb == 1


def test_every_setting_says_what_it_is() -> None:
    undescribed = [n for n, f in Settings.model_fields.items() if not f.description]
    assert undescribed == []


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NITRO_PORT", "9999")
    monkeypatch.setenv("NITRO_TOKEN", "secret")
    settings = Settings()
    assert settings.port == 9999
    assert "secret" not in repr(settings)


def test_artifacts_are_in_the_runs_folder_unless_told_otherwise() -> None:
    assert Settings.model_validate({"runs_dir": "r"}).artifact_location == "r"
    both = {"runs_dir": "r", "artifacts": "s3://bucket/runs"}
    assert Settings.model_validate(both).artifact_location == "s3://bucket/runs"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"port": 70000}, "port"),
        ({"token": " "}, "token"),
        ({"invoke_pool_size": 0}, "invoke_pool_size"),
        ({"lambda_timeout_s": float("inf")}, "lambda_timeout_s"),
        ({"auth": "off"}, "auth"),
        ({"price_table": "free"}, "known: aws-us-east-1-2026-11, aws"),
        ({"lambda_timeout_s": 80.0}, "NITRO_LAMBDA_READ_TIMEOUT_S (75) must exceed"),
        ({"store": "dynamodb"}, "NITRO_TABLE must name the table"),
        ({"cache_auth": "iam", "cache_user": "u"}, "NITRO_CACHE_NAME"),
        ({"heartbeat_every_s": 30.0}, "NITRO_HEARTBEAT_EVERY_S (30) must be below"),
        ({"learner_instance": "abacus"}, "NITRO_LEARNER_INSTANCE"),
        ({"price_table": "paper", "learner_instance": "p3.2xlarge"}, "NITRO_CACHE_NODE"),
    ],
)
def test_nonsense_is_refused_by_name(changes: dict[str, object], named: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate(changes)
    assert named in str(refused.value)


def test_the_papers_prices_can_be_chosen() -> None:
    settings = Settings(price_table="paper", learner_instance="p3.2xlarge", cache_node="none")
    assert settings.cost_basis().learner_usd_per_s * 3600 == pytest.approx(3.06)


def test_prices_of_ones_own_come_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NITRO_PRICES", json.dumps(FRANKFURT))
    basis = Settings(cache_node="cache.t4g.medium", cache_engine="redis").cost_basis()
    assert basis.prices.name == "frankfurt"
    assert basis.learner_usd_per_s * 3600 == pytest.approx(1.25)
    assert basis.cache_usd_per_s * 3600 == pytest.approx(0.08)
    valkey = Settings(cache_node="cache.t4g.medium", cache_engine="valkey").cost_basis()
    assert valkey.cache_usd_per_s * 3600 == pytest.approx(0.06)


@pytest.mark.parametrize(
    ("prices", "told"),
    [
        ("{", "NITRO_PRICES: Input should be a valid dictionary"),
        (json.dumps({**FRANKFURT, "region": ""}), "NITRO_PRICES.region: String should match"),
        (
            json.dumps({**FRANKFURT, "learner_usd_per_hour": {"g6.2xlarge": -1}}),
            "NITRO_PRICES.learner_usd_per_hour.g6.2xlarge: Input should be greater",
        ),
        (json.dumps({**FRANKFURT, "cache_usd_per_hour": {}}), "NITRO_CACHE_NODE: price table"),
        (json.dumps({**FRANKFURT, "name": "paper"}), "NITRO_PRICES.name: 'paper' is a table"),
    ],
)
def test_what_is_wrong_with_them_is_named(
    monkeypatch: pytest.MonkeyPatch, prices: str, told: str
) -> None:
    monkeypatch.setenv("NITRO_PRICES", prices)
    with pytest.raises(ValidationError) as refused:
        Settings()
    assert told in settings_text(refused.value)
