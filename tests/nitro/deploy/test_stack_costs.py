"""What the stack costs, against the arithmetic of AWS's price pages done by hand."""

import pytest

from nitro.deploy.stack_costs import busy_usd_per_hour, idle_usd_per_month, stack_costs
from shared.deployment.config import NitroConfig

_FIXED = (2 * 0.40 + 6 * 0.10 + 0.50) / 730
"""Tokens, alarms and the private DNS zone."""


def test_the_default_stack() -> None:
    items = stack_costs(NitroConfig(), learner_instance="g6.2xlarge")
    idle_an_hour = 0.25 * 0.04048 + 0.5 * 0.004445 + 0.0128 + 0.005 + _FIXED
    assert idle_usd_per_month(items) == pytest.approx(730 * idle_an_hour)
    assert idle_usd_per_month(items) == pytest.approx(23.9, abs=0.01)
    warm = 64 * 3600 * 0.0000041667
    working = 64 * 3600 * 0.0000097222
    assert warm == pytest.approx(0.96, abs=0.001)
    on_cores = 2 * 0.04048 + 4 * 0.004445
    busy = idle_an_hour + 2 * 0.005 + 0.9776 + on_cores + warm + working
    assert busy_usd_per_hour(items) == pytest.approx(busy)


def test_without_provisioned_concurrency_an_idle_stack_costs_the_same() -> None:
    config = NitroConfig(provisioned_concurrency=0)
    items = stack_costs(config, learner_instance="g6.2xlarge")
    usual = stack_costs(NitroConfig(), learner_instance="g6.2xlarge")
    assert idle_usd_per_month(items) == idle_usd_per_month(usual)
    assert busy_usd_per_hour(items) < busy_usd_per_hour(usual) - 0.95


def test_on_arm64_an_idle_stack_costs_less() -> None:
    items = stack_costs(NitroConfig(architecture="arm64"), learner_instance="g6.2xlarge")
    idle_an_hour = 0.25 * 0.03238 + 0.5 * 0.00356 + 0.0128 + 0.005 + _FIXED
    assert idle_usd_per_month(items) == pytest.approx(730 * idle_an_hour)
    assert idle_usd_per_month(items) == pytest.approx(22.10, abs=0.01)


def test_a_machine_without_a_price_is_named() -> None:
    with pytest.raises(ValueError, match=r"m9\.huge"):
        stack_costs(NitroConfig(), learner_instance="m9.huge")
