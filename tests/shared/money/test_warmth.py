"""Provisioned or reused: against sums done by hand with the paper's prices.

One environment of 1 GB costs $0.0150 an hour idle; an hour of work in it costs $0.0600 on demand
and $0.0350 provisioned.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.money.costs import ping_s, worst_case_round_usd
from shared.money.prices import AWS_US_EAST_1_2026_11, PAPER
from shared.money.round_costs import held_items
from shared.money.warmth import (
    WarmUse,
    cheaper_way,
    provisioned_usd,
    reuse_usd,
)
from tests.shared.money.test_costs import paper_basis

HOUR_S = 3600.0
REUSED = replace(paper_basis(provisioned=0), pinged=64, ping_every_s=240.0, cold_start_s=2.0)


def hour(busy_share: float, *, lost: float = 0.0, waits: float = 0.0) -> WarmUse:
    """An hour of 64 environments of 1 GB."""
    return WarmUse(
        held_s=HOUR_S, busy_gb_s=64 * HOUR_S * busy_share, reused_s=HOUR_S, lost=lost, waits=waits
    )


def test_64_pings_every_four_minutes_cost_less_than_a_cent_an_hour() -> None:
    # 15 times an hour 64 GB for 0.456 s, a hundredth of what provisioned ones cost idle.
    assert ping_s(64) == pytest.approx(0.456)
    cost_usd = (REUSED.usd_per_s - REUSED.base_usd_per_s) * HOUR_S
    assert cost_usd == pytest.approx(15 * 64 * 0.456 * 0.0000166667) == pytest.approx(0.0073, 0.01)
    assert sum(i.amount_usd for i in held_items(HOUR_S, REUSED)) == pytest.approx(3.06 + cost_usd)
    requests = replace(REUSED, prices=AWS_US_EAST_1_2026_11)
    assert (requests.usd_per_s - REUSED.usd_per_s) * HOUR_S == pytest.approx(15 * 64 * 0.2 / 1e6)


def test_a_round_is_priced_as_if_every_ping_had_to_start_an_environment() -> None:
    worst = worst_case_round_usd(0, waiting_s=0.0, learner_s=HOUR_S, basis=REUSED)
    assert worst == pytest.approx(3.06 + 15 * 64 * 2.456 * 0.0000166667)


def test_what_an_hour_costs_either_way() -> None:
    basis = replace(REUSED, provisioned=64, pinged=0)
    half = hour(0.5)
    assert reuse_usd(half, 64, basis) == pytest.approx(64 * 0.5 * 0.06 + 0.0073, abs=0.0002)
    assert provisioned_usd(half, 64, basis) == pytest.approx(64 * (0.015 + 0.5 * 0.035), abs=0.0002)
    # 90 rounds wait 2 s each for the learner of $3.06 an hour; each lost one took 2 GB-seconds.
    losing = hour(0.5, lost=900, waits=90)
    waiting_usd = 90 * 2 / 3600 * 3.06
    assert reuse_usd(losing, 64, basis) - reuse_usd(half, 64, basis) == pytest.approx(waiting_usd)
    saved_usd = provisioned_usd(half, 64, basis) - provisioned_usd(losing, 64, basis)
    assert saved_usd == pytest.approx(1800 * 0.0000097222)


def test_environments_that_pings_had_to_start_count_against_reuse() -> None:
    basis = replace(REUSED, provisioned=64, pinged=0)
    half = hour(0.5)
    started = half.model_copy(update={"started": 900.0})
    # 900 starts of 2 GB-seconds; nobody waits for them, and no actor was billed for them.
    more_usd = reuse_usd(started, 64, basis) - reuse_usd(half, 64, basis)
    assert more_usd == pytest.approx(1800 * 0.0000166667)
    assert provisioned_usd(started, 64, basis) == provisioned_usd(half, 64, basis)
    use = WarmUse().after(10.0, 5.0, reused=True, lost=0, started=4)
    assert (use.started, use.lost, use.waits) == (4.0, 0.0, 0.0)
    assert use.after(10.0, 5.0, reused=True, lost=0).started == pytest.approx(3.6)


def test_a_ping_takes_half_of_a_short_time_out_at_most_and_is_billed_so() -> None:
    assert ping_s(64, timeout_s=0.3) == 0.15
    brief = replace(REUSED, function_timeout_s=0.3)
    cost_usd = (brief.usd_per_s - brief.base_usd_per_s) * HOUR_S
    assert cost_usd == pytest.approx(15 * 64 * 0.15 * 0.0000166667)


@pytest.mark.parametrize(
    ("use", "way"),
    [
        (WarmUse(), "reuse"),
        (hour(0.5), "reuse"),
        (hour(0.59), "reuse"),
        (hour(0.61), "provisioned"),
        # At a fifth of the time provisioned ones cost $0.64 more an hour, some 370 waits of 2 s.
        (hour(0.2, lost=350, waits=350), "reuse"),
        (hour(0.2, lost=400, waits=400), "provisioned"),
    ],
)
def test_the_cheaper_way_follows_the_busy_share_and_what_is_lost(use: WarmUse, way: str) -> None:
    basis = replace(REUSED, provisioned=64, pinged=0)
    assert cheaper_way(use, 64, basis) == way
    assert cheaper_way(use, 64, replace(basis, provisioned=0)) == "reuse"


@given(share=st.floats(0.0, 1.0), num=st.integers(1, 200), provisioned=st.integers(1, 200))
def test_without_losses_or_pings_the_break_even_is_that_of_one_environment(
    share: float, num: int, provisioned: int
) -> None:
    basis = paper_basis(provisioned=provisioned)
    use = WarmUse(held_s=HOUR_S, busy_gb_s=num * HOUR_S * share)
    saved = PAPER.lambda_usd_per_gb_s - PAPER.provisioned_duration_usd_per_gb_s
    pays = PAPER.provisioned_usd_per_gb_s / saved  # three fifths of the time
    if abs(share - pays) > 1e-6:
        assert (cheaper_way(use, num, basis) == "provisioned") == (share > pays)


def test_newer_rounds_weigh_more_and_what_reuse_loses_is_remembered() -> None:
    reused = WarmUse().after(10.0, 5.0, reused=True, lost=0).after(10.0, 5.0, reused=True, lost=4)
    assert (reused.held_s, reused.reused_s, reused.busy_gb_s) == (19.0, 19.0, 9.5)
    assert (reused.lost, reused.waits) == (4.0, 1.0)
    after = reused.after(10.0, 5.0, reused=False, lost=0)
    assert after.held_s == pytest.approx(27.1)
    assert (after.reused_s, after.lost, after.waits) == (19.0, 4.0, 1.0)
