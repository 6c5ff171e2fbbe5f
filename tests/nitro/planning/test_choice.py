"""Which way is chosen, and when serverless is called the wrong tool."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro.planning.choice import choose, pareto_front
from nitro.planning.ways import Place, Way, ways
from tests.nitro.planning.job import CPU, GPU, SLOW_STEP_S, a_job


def way(place: Place, wall_s: float, usd: float) -> Way:
    return Way(place=place, name=place, num_actors=8, start_s=0.0, wall_s=wall_s, usd=usd)


TIMES = st.floats(1.0, 1e4)
SOME = st.lists(
    st.builds(way, st.sampled_from(["server", "serverless"]), TIMES, TIMES), min_size=1, max_size=20
)


@given(SOME)
def test_the_front_is_what_nothing_else_beats_in_both(some: list[Way]) -> None:
    front = pareto_front(some)
    for each in some:
        beaten = any(
            (o.wall_s <= each.wall_s and o.usd < each.usd)
            or (o.wall_s < each.wall_s and o.usd <= each.usd)
            for o in some
        )
        same = any((f.wall_s, f.usd) == (each.wall_s, each.usd) for f in front)
        assert same is not beaten


def test_the_value_of_time_balances_between_cheapest_and_fastest() -> None:
    here, server, best = (
        way("here", 36_000, 0.0),
        way("server", 3600, 2.0),
        way("server", 360, 12.0),
    )
    some = (here, server, best)
    for usd_per_hour, balanced in ((0.0, here), (10.0, server), (1000.0, best)):
        choice = choose(some, usd_per_hour=usd_per_hour)
        assert (choice.cheapest, choice.balanced, choice.fastest) == (here, balanced, best)


def test_serverless_pays_for_a_slow_simulator() -> None:
    job = a_job(step_s=SLOW_STEP_S)
    choice = choose(ways(job, (CPU, GPU), cores_here=2, actors_here=8), usd_per_hour=10.0)
    assert choice.serverless_pays
    assert choice.fastest.place == "serverless"
    assert choice.verdict.startswith("Serverless pays here")


def test_serverless_is_the_wrong_tool_for_a_fast_one() -> None:
    job = a_job(step_s=1e-5)
    choice = choose(ways(job, (CPU, GPU), cores_here=2, actors_here=8), usd_per_hour=10.0)
    assert not choice.serverless_pays
    assert choice.verdict.startswith("Serverless is the wrong tool here")


@pytest.mark.parametrize(
    ("serverless", "pays"),
    [
        (way("serverless", 70.0, 1.05), True),
        (way("serverless", 95.0, 0.99), False),
        (way("serverless", 150.0, 0.5), True),
        (way("serverless", 150.0, 0.81), False),
        (way("serverless", 600.0, 0.5), False),
        (way("serverless", 70.0, 9.0), False),
    ],
    ids=[
        "faster",
        "hardly faster",
        "cheaper",
        "hardly cheaper",
        "slower than this machine",
        "too dear for its speed",
    ],
)
def test_serverless_has_to_gain_a_fifth_and_be_worth_its_price(
    serverless: Way, *, pays: bool
) -> None:
    some = (way("here", 500.0, 0.0), way("server", 100.0, 1.0), serverless)
    assert choose(some, usd_per_hour=10.0).serverless_pays is pays


def test_whether_speed_is_worth_its_price_follows_from_the_value_of_time() -> None:
    some = (way("here", 3600.0, 0.0), way("server", 600.0, 0.4), way("serverless", 470.0, 400.0))
    assert not choose(some, usd_per_hour=10.0).serverless_pays
    assert choose(some, usd_per_hour=20_000.0).serverless_pays


def test_no_serverless_way_at_all_is_told() -> None:
    choice = choose((way("here", 200.0, 0.0),), usd_per_hour=10.0)
    assert "exceeds Lambda's time limit" in choice.verdict
