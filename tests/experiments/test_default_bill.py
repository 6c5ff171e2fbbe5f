"""The default job's bill, some of its items by hand."""

import math

import pytest

from experiments.default_bill import bill_table
from experiments.durations import Durations
from shared.deployment.config import NitroConfig
from tests.experiments.made_up import MACHINE

ROUNDS = 489
"""Of 2,048 steps, to a million."""
EPISODES = 20 * 10 + 10
"""Of an evaluation every 25 rounds, and of the final one."""


def table() -> dict[str, tuple[float, ...]]:
    known = Durations(
        step_s=1e-4,
        reset_s=0.0,
        call_s=0.0,
        update_fixed_s=0.0,
        gradient_step_s=1e-3,
        measuring_s=0.0,
        num_epochs=10,
        minibatch_size=64,
        bytes_per_sample=0.0,
        environment=MACHINE,
    )
    return {
        str(row[0]): tuple(float(str(value)) for value in row[1:])
        for row in bill_table("Hopper-v4", known).rows
    }


def test_each_change_lowers_its_own_item() -> None:
    rows = table()
    provisioned, reused, cpu, smallest, own = zip(*(rows[item] for item in rows), strict=True)
    items = list(rows)
    assert provisioned[items.index("provisioned concurrency")] > 0
    assert reused[items.index("provisioned concurrency")] == 0
    assert cpu[items.index("learner")] < reused[items.index("learner")] / 3
    assert smallest[items.index("cache")] < cpu[items.index("cache")] / 3
    assert own[items.index("lambda duration")] == own[items.index("lambda requests")] == 0
    assert sorted(rows["all"], reverse=True) == list(rows["all"])


def test_items_are_what_they_are_by_hand() -> None:
    rows, prices = table(), NitroConfig().price_table
    requests = ROUNDS * 8 + EPISODES
    *functions, own = rows["lambda requests"]
    assert set(functions) == {round(requests * 2e-7, 4)}
    assert own == 0
    share = 1024 / 1769
    rollout_s = math.ceil(256e-4 / share * 1000) / 1000
    episode_s = math.ceil(700e-4 / share * 1000) / 1000
    gb_s = ROUNDS * 8 * rollout_s + EPISODES * episode_s + 18 * 2.0
    assert rows["lambda duration"][-2] == pytest.approx(gb_s * 1.66667e-5, abs=6e-5)
    # A minute's start at 2 vCPU and 4 GB of Fargate.
    start_usd = 60 * prices.fargate_usd_per_s(vcpu=2, memory_gb=4)
    assert rows["learner, start"][-1] == pytest.approx(start_usd, abs=6e-5)


def test_the_bill_adds_up() -> None:
    rows = table()
    items = [values for item, values in rows.items() if item not in ("all", "minutes")]
    for column, total in enumerate(rows["all"]):
        assert sum(values[column] for values in items) == pytest.approx(total, abs=5e-4)
