"""One rented server against sums done by hand."""

import pytest

from shared.money.one_server import best_server, one_server_round_s, round_on_servers
from shared.money.prices import AWS_US_EAST_1_2026_11, PAPER
from tests.shared.money.test_costs import paper_basis
from tests.shared.money.test_round_costs import measured

SHARE = 1024 / 1769
"""Of a core, that a function of 1,024 MB has."""


@pytest.mark.parametrize(
    ("cores", "seconds"), [(4, 16 * 10 + 5), (16, 4 * 10 + 5), (64, 10 + 5), (128, 10 + 5)]
)
def test_64_actors_of_ten_seconds_share_the_cores_and_the_learner_follows(
    cores: int, seconds: float
) -> None:
    one = measured(each_s=10.0 / SHARE)
    assert one_server_round_s(one, paper_basis(), cores) == pytest.approx(seconds)


def test_rounds_that_overlap_are_no_faster_than_their_work() -> None:
    one = measured(each_s=10.0 / SHARE, open_rounds=8)
    assert one_server_round_s(one, paper_basis(), 16) == pytest.approx(40 + 5 / 16)
    assert one_server_round_s(one, paper_basis(), 64) == pytest.approx(10 + 5 / 64)


def test_tasks_of_the_learners_own_cores_need_the_servers_cores_too() -> None:
    own = measured(count=0, slowest_sample_s=0.0, own_busy_s=80.0, own_tasks=8, own_s=40.0)
    assert [one_server_round_s(own, paper_basis(), cores) for cores in (4, 8, 64)] == [25, 15, 15]
    # 32 functions of 10 s each come on top.
    both = measured(count=32, each_s=10.0 / SHARE, own_busy_s=80.0, own_tasks=8)
    assert one_server_round_s(both, paper_basis(), 4) == pytest.approx((320 + 80) / 4 + 5)


def test_the_best_server_is_the_cheapest_with_its_boot() -> None:
    prices = AWS_US_EAST_1_2026_11
    few = best_server({"c7i.xlarge": 600.0, "c7i.4xlarge": 300.0}, prices)
    assert few is not None
    # 660 s at 0.1785 an hour, or 360 s at 0.714.
    assert (few.learner_instance, few.wall_s) == ("c7i.xlarge", 660.0)
    assert few.total_usd == pytest.approx(660 * 0.1785 / 3600)
    many = best_server(
        round_on_servers(measured(each_s=10.0, learner_s=0.0), paper_basis()), prices
    )
    assert many is not None
    # One round only: the boot is most of it, so the smallest costs least.
    assert many.learner_instance == "c7i.xlarge"
    assert best_server({"c7i.xlarge": 600.0}, PAPER) is None
    assert best_server({}, prices) is None
