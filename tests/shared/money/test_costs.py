"""Cost functions against sums done by hand and in decimal arithmetic."""

import math
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.money.costs import (
    CostBasis,
    cpu_share,
    deadline_s,
    lambda_gb_seconds,
    launch_ramp_s,
    projected_duration_s,
    worst_case_launch_usd,
    worst_case_round_usd,
)
from shared.money.prices import PAPER


def paper_basis(*, provisioned: int = 64) -> CostBasis:
    return CostBasis(
        prices=PAPER,
        learner_usd_per_s=PAPER.learner_usd_per_s("p3.2xlarge"),
        cpu_learner_usd_per_s=0.0,
        cache_usd_per_s=0.0,
        scaler_usd_per_s=0.0,
        memory_mb=1024,
        function_timeout_s=60.0,
        provisioned=provisioned,
    )


def test_a_function_of_1769_mb_has_one_core_and_one_of_1024_mb_58_percent() -> None:
    assert cpu_share(1769) == 1
    assert cpu_share(10240) == 1
    assert cpu_share(1024) == pytest.approx(0.5789, abs=1e-4)


@pytest.mark.parametrize(
    ("duration_s", "memory_mb", "expected"),
    [
        (1.0, 1024, 1.0),
        (0.0, 1024, 0.0),
        (0.0001, 1024, 0.001),
        (0.003, 1024, 0.003),
        (0.0031, 1024, 0.004),
        (60.0, 512, 30.0),
    ],
)
def test_durations_are_billed_in_whole_milliseconds(
    duration_s: float, memory_mb: int, expected: float
) -> None:
    assert lambda_gb_seconds(duration_s, memory_mb) == pytest.approx(expected, abs=1e-12)


@given(milliseconds=st.integers(0, 10_000_000))
def test_a_whole_number_of_milliseconds_is_never_rounded_up(milliseconds: int) -> None:
    assert lambda_gb_seconds(milliseconds / 1000, 1024) == milliseconds / 1000


@pytest.mark.parametrize(("memory_mb", "usd"), [(512, 0.48), (1024, 0.96), (2048, 1.92)])
def test_keeping_the_papers_environments_warm_costs_96_cents_an_hour(
    memory_mb: int, usd: float
) -> None:
    basis = replace(paper_basis(), memory_mb=memory_mb)
    idle = (basis.usd_per_s - basis.learner_usd_per_s) * 3600
    assert idle == pytest.approx(usd, abs=0.0001)


def test_one_hour_of_the_papers_learner_and_64_busy_actors() -> None:
    # 64 actors of 1 GB, all of the hour: $3.06 + 64 * 3600 * (0.0000041667 + 0.0000097222).
    basis = paper_basis()
    busy = 64 * lambda_gb_seconds(3600, 1024) * PAPER.provisioned_duration_usd_per_gb_s
    total = 3600 * basis.usd_per_s + busy
    assert total == pytest.approx(3.06 + 0.96 + 2.24, abs=0.001)


def test_the_worst_case_of_a_round_is_the_sum_of_its_parts() -> None:
    basis = paper_basis(provisioned=8)
    got = worst_case_round_usd(10, waiting_s=130.0, learner_s=60.0, basis=basis)
    learner = Decimal(190) * Decimal("3.06") / 3600
    warm = Decimal(190) * 8 * Decimal("0.0000041667")
    actors = Decimal(10 * 2 * 60) * Decimal("0.0000166667")
    assert got == pytest.approx(float(learner + warm + actors), rel=1e-12)


@pytest.mark.parametrize(
    ("cold_start_s", "warm_usd", "gb_s_usd"),
    [(2.0, 0.0, 62 * 0.0000166667), (0.0, 0.00003, 60 * 0.00003)],
)
def test_the_worst_case_of_a_launch_is_cold_and_at_the_dearer_price(
    cold_start_s: float, warm_usd: float, gb_s_usd: float
) -> None:
    prices = PAPER.model_copy(update={"provisioned_duration_usd_per_gb_s": warm_usd})
    basis = replace(paper_basis(), prices=prices, cold_start_s=cold_start_s)
    assert worst_case_launch_usd(10, basis) == pytest.approx(10 * 2 * gb_s_usd, rel=1e-12)


def test_the_launch_ramp_is_a_burst_of_1000_then_1000_per_10_seconds() -> None:
    assert [launch_ramp_s(n) for n in (0, 64, 1000, 2000, 3000)] == [0, 0, 0, 10, 20]


def test_the_deadline_lets_every_actor_run_out_of_time_twice() -> None:
    assert deadline_s(64, function_timeout_s=60, slack_s=10) == 130
    assert deadline_s(2000, function_timeout_s=60, slack_s=10) == 140


def test_a_measured_duration_is_stretched_by_the_cpu_share_up_to_the_timeout() -> None:
    assert projected_duration_s(1.0, memory_mb=1024, timeout_s=60) == pytest.approx(1769 / 1024)
    assert projected_duration_s(50.0, memory_mb=1024, timeout_s=60) == 60


@given(
    durations=st.lists(st.floats(0, 60), max_size=40),
    extra=st.integers(0, 10),
    provisioned=st.integers(0, 64),
)
def test_no_launch_costs_more_than_its_worst_case(
    durations: list[float], extra: int, provisioned: int
) -> None:
    basis = paper_basis(provisioned=provisioned)
    tasks = math.ceil(len(durations) / 2) + extra
    paid = sum(lambda_gb_seconds(d, basis.memory_mb) * PAPER.lambda_usd_per_gb_s for d in durations)
    assert paid <= worst_case_launch_usd(tasks, basis) * (1 + 1e-12)
