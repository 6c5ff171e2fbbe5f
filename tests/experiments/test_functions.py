"""What records of gradients come to: shares, bounds and fates counted by hand."""

import pytest

from experiments.functions import (
    account_table,
    bound_panel,
    breakdown_panel,
    stage_s,
    staleness_panel,
)
from experiments.outcome import JobOutcome
from shared.contracts.gradients import GradientRecord
from tests.experiments.made_up import outcome


def run(*records: GradientRecord) -> JobOutcome:
    made = outcome([0, 1, 2], actors=[8] * len(records))
    rounds = tuple(
        each.model_copy(update={"gradients": record})
        for each, record in zip(made.rounds, records, strict=True)
    )
    return made.model_copy(update={"rounds": rounds})


FIRST = GradientRecord(
    asked=4, used=3, stale=1, lost=0, steps=2, staleness=(0, 0, 2), fetch_s=0.1, bound=None
)
SECOND = GradientRecord(
    asked=4, used=3, stale=0, lost=1, steps=3, staleness=(1, 1, 2), fetch_s=0.3, bound=3.0
)
GROUPS = {"functions": [run(FIRST, SECOND)]}


def test_shares_count_every_used_gradient_once() -> None:
    panel = staleness_panel(
        "staleness", GROUPS | {"fresh": [run(FIRST, FIRST), run(SECOND, SECOND)]}
    )
    assert panel.categories == ("0", "1", "2")
    alone, both = panel.series
    assert alone.y == pytest.approx((2 / 6, 2 / 6, 2 / 6))
    assert alone.low == alone.high == alone.y  # one run has no interval
    assert both.y == pytest.approx(((2 / 3 + 0) / 2, (0 + 4 / 6) / 2, 2 / 6))
    assert both.low == pytest.approx((0, 0, 2 / 6))
    assert both.high == pytest.approx((2 / 3, 4 / 6, 2 / 6))


def test_rounds_without_a_bound_are_not_drawn() -> None:
    higher = SECOND.model_copy(update={"bound": 5.0})
    found = [run(FIRST, SECOND), run(FIRST, higher), run(FIRST, FIRST)]
    (series,) = bound_panel("bound", {"functions": found}).series
    assert (series.x, series.y, series.low, series.high) == ((1.0,), (4.0,), (3.0,), (5.0,))


def test_stages_are_means_over_rounds() -> None:
    assert stage_s(GROUPS["functions"], "fetch") == pytest.approx(0.2)
    both = {"functions": [run(FIRST, SECOND), run(SECOND, SECOND)]}
    (series,) = breakdown_panel("stages", both).series
    assert series.low is not None
    assert series.high is not None
    assert (series.low[1], series.y[1], series.high[1]) == pytest.approx((0.2, 0.25, 0.3))


def test_fates_are_summed_up() -> None:
    (row,) = account_table("gradients", GROUPS).rows
    assert row == ("functions", 1, 8, 6, 1, 1, 0, "1", "2.5")
