"""Time and cost of measured rounds against the paper's prices and sums done by hand in decimals."""

from collections.abc import Iterable
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.money.costs import CostBasis, deadline_s, worst_case_round_usd
from shared.money.prices import AWS_US_EAST_1_2026_11, PAPER
from shared.money.round_costs import (
    PAPER_SERVERS,
    SERVERFUL_ASSUMPTIONS,
    MeasuredRound,
    Servers,
    execution_items,
    held_items,
    projection_assumptions,
    serverful_cost,
    serverful_round_s,
    serverless_round_s,
)
from tests.shared.money.test_costs import paper_basis

LEARNER, ACTORS = Decimal("3.06"), Decimal("0.68")
GB_S, IDLE_GB_S, WARM_GB_S = (
    Decimal("0.0000166667"),
    Decimal("0.0000041667"),
    Decimal("0.0000097222"),
)


def cents(usd: float | Decimal) -> Decimal:
    return Decimal(usd).quantize(Decimal("0.01"), ROUND_HALF_UP)


def measured(count: int = 64, each_s: float = 10.0, **changes: object) -> MeasuredRound:
    fields = {
        "num_invocations": count,
        "durations_s": (each_s,) * count,
        "slowest_sample_s": each_s,
        "slowest_evaluation_s": 0.0,
        "requests": count,
        "learner_s": 5.0,
        **changes,
    }
    return MeasuredRound(**fields)  # type: ignore[arg-type]


def bill(rounds: Iterable[MeasuredRound], basis: CostBasis) -> dict[str, float]:
    """Return what rounds cost on AWS, by item, if each took the time the model gives it."""
    sums: dict[str, float] = {}
    for one in rounds:
        held = held_items(serverless_round_s(one, basis), basis)
        for item in (*held, *execution_items(one, basis)):
            sums[item.item] = sums.get(item.item, 0.0) + item.amount_usd
    return sums


def test_an_hour_of_the_papers_servers_costs_374_cents() -> None:
    assert cents(serverful_cost(3600.0, PAPER_SERVERS, PAPER).total_usd) == Decimal("3.74")


def test_the_papers_training_run_to_the_cent() -> None:
    """50 rounds of 64 warm actors of 1,024 MB, 10 s each, and 5 s of the learner: 750 s.

    Learner 750 s at 3.06 $/h, provisioned concurrency 64 GB for 750 s, and 50 * 64 * 10 GB-seconds
    at the price of provisioned durations.
    """
    rounds = [measured(warm=64)] * 50
    billed = bill(rounds, paper_basis())
    expected = {
        "learner": 750 * LEARNER / 3600,
        "provisioned_concurrency": 750 * 64 * IDLE_GB_S,
        "lambda_duration": 50 * 64 * 10 * WARM_GB_S,
    }
    for item, usd in expected.items():
        assert billed[item] == pytest.approx(float(usd), rel=1e-9)
    assert cents(sum(billed.values())) == cents(sum(expected.values())) == Decimal("1.15")


def test_the_papers_ablation_without_provisioned_concurrency_to_the_cent() -> None:
    # 16 actors a round on demand at 0.0000166667 $ per GB-second (section 8.5).
    billed = bill([measured(count=16)] * 50, paper_basis(provisioned=0))
    expected = 750 * LEARNER / 3600 + 50 * 16 * 10 * GB_S
    assert cents(sum(billed.values())) == cents(expected) == Decimal("0.77")


def test_the_same_run_on_the_papers_servers_to_the_cent() -> None:
    # A 1,024 MB function has 1024/1769 of a core: 10 s there are 5.79 s here, four times in a row.
    wall_s = 50 * serverful_round_s(measured(), paper_basis(), PAPER_SERVERS)
    servers = serverful_cost(wall_s, PAPER_SERVERS, PAPER)
    round_s = 4 * Decimal(10) * 1024 / 1769 + 5
    assert servers.wall_s == pytest.approx(float(50 * round_s))
    assert cents(servers.total_usd) == cents(50 * round_s * (LEARNER + ACTORS) / 3600)
    assert cents(servers.total_usd) == Decimal("1.46")


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({}, 15.0),  # 10 of the actors and 5 of the learner
        ({"overhead_s": 0.25}, 15.25),
        ({"launch_s": 0.5}, 15.5),
        ({"count": 3000}, 35.0),
        # Sending requests overlaps the start of environments.
        ({"count": 2000, "launch_s": 4.0}, 25.0),
        ({"count": 2000, "launch_s": 14.0}, 29.0),
        # The learner waits no longer than the deadline.
        ({"each_s": 60.0, "deadline_s": 42.0}, 47.0),
        ({"slowest_evaluation_s": 60.0, "deadline_s": 42.0}, 42.0),
        # Evaluation runs beside the round and counts only when it is slower.
        ({"slowest_evaluation_s": 14.0}, 15.0),
        ({"slowest_evaluation_s": 19.0}, 19.0),
        # Open rounds pass in the time of one, but no faster than the learner.
        *(({"open_rounds": n}, max(15.0 / n, 5.0)) for n in (2, 3, 8)),
    ],
)
def test_a_round_is_overhead_launch_slowest_actor_and_learner(
    changes: dict[str, Any], seconds: float
) -> None:
    assert serverless_round_s(measured(**changes), paper_basis()) == seconds


def test_a_cold_start_delays_the_round_once_and_is_billed_per_environment() -> None:
    basis = replace(paper_basis(), cold_start_s=2.0)
    warm, cold = measured(warm=60), measured(warm=60, cold=4)
    assert serverless_round_s(cold, basis) == serverless_round_s(warm, basis) + 2
    more = bill([cold], basis)["lambda_duration"] - bill([warm], basis)["lambda_duration"]
    assert more == pytest.approx(float(4 * 2 * GB_S), rel=1e-9)


def test_on_servers_few_actors_take_as_long_as_the_slowest() -> None:
    few = measured(count=3, durations_s=(1.0, 2.0, 8.0), slowest_sample_s=8.0, overhead_s=0.5)
    assert serverful_round_s(few, paper_basis(), PAPER_SERVERS) == pytest.approx(
        8 * 1024 / 1769 + 5.5
    )
    slow_evaluation = replace(few, slowest_evaluation_s=12.0)
    assert serverful_round_s(slow_evaluation, paper_basis(), PAPER_SERVERS) == pytest.approx(
        12 * 1024 / 1769 + 5.5
    )


def test_on_servers_the_learners_own_tasks_share_the_actors_cores() -> None:
    own = measured(count=0, slowest_sample_s=0.0, own_busy_s=320.0, own_tasks=32, own_s=160.0)
    assert serverful_round_s(own, paper_basis(), PAPER_SERVERS) == 320 / 16 + 5
    few = replace(own, own_busy_s=20.0, own_tasks=2)
    assert serverful_round_s(few, paper_basis(), PAPER_SERVERS) == 10 + 5


def test_a_cluster_the_prices_do_not_know_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'p9.huge'.*known:.*c5.4xlarge"):
        serverful_cost(1.0, Servers(learner_instance="p9.huge"), AWS_US_EAST_1_2026_11)


def test_every_assumption_is_listed() -> None:
    basis = replace(paper_basis(), cold_start_s=2.0)
    text = " ".join((*projection_assumptions(basis), *SERVERFUL_ASSUMPTIONS))
    for word in ("section 8.1", "2 s for new environments", "1024 MB", "time-out of 60 s"):
        assert word in text
    for word in ("1,000 more per 10 s", "16 cores", "can no longer be started"):
        assert word in text


@given(
    tasks=st.lists(st.lists(st.floats(0, 60), min_size=1, max_size=2), min_size=1, max_size=30),
    provisioned=st.integers(0, 64),
    cold_start_s=st.floats(0, 5),
    launch_s=st.floats(0, 100),
    overhead_s=st.floats(0, 100),
    learner_s=st.floats(0, 60),
)
def test_no_measured_round_costs_more_than_its_worst_case(
    tasks: list[list[float]],
    provisioned: int,
    cold_start_s: float,
    launch_s: float,
    overhead_s: float,
    learner_s: float,
) -> None:
    basis = replace(paper_basis(provisioned=provisioned), cold_start_s=cold_start_s)
    waiting_s = deadline_s(len(tasks), function_timeout_s=60.0, slack_s=10.0)
    one = MeasuredRound(
        num_invocations=len(tasks),
        durations_s=tuple(d for task in tasks for d in task),
        slowest_sample_s=max(sum(task) for task in tasks),
        slowest_evaluation_s=0.0,
        requests=sum(len(task) for task in tasks),
        learner_s=learner_s,
        cold=len(tasks),
        launch_s=launch_s,
        overhead_s=overhead_s,
        deadline_s=waiting_s,
    )
    worst = worst_case_round_usd(len(tasks), waiting_s=waiting_s, learner_s=60.0, basis=basis)
    assert sum(bill([one], basis).values()) <= worst * (1 + 1e-9)


@pytest.mark.parametrize(("open_rounds", "seconds"), [(1, 9.0), (2, 4.5), (4, 3.0), (8, 3.0)])
def test_open_rounds_overlap_on_servers_too_but_share_cores_and_learner(
    open_rounds: int, seconds: float
) -> None:
    share = 1024 / 1769
    one = measured(count=3, each_s=6.0 / share, learner_s=3.0, open_rounds=open_rounds)
    assert serverful_round_s(one, paper_basis(), PAPER_SERVERS) == pytest.approx(seconds)
    many = measured(open_rounds=8, each_s=10.0 / share)
    assert serverful_round_s(many, paper_basis(), PAPER_SERVERS) == pytest.approx(40.0)
