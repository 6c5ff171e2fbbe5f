"""Times and dollars of searches, whose actors live through several iterations of a round."""

import math
from dataclasses import replace

import pytest

from nitro.planning.ways import ACTORS, Learner, serverless, serverless_rounds, this_machine, ways
from nitro.planning.workload import Workload, iterations_in_time
from tests.nitro.planning.job import CPU, a_search, at_once

MEMORY_MB = 1024
SHARE = MEMORY_MB / 1769
"""Of a core, which a function of 1 GB has."""
USD_PER_GB_S = 0.0000166667
TIMEOUT_S = 60.0
LARGE_CACHE = replace(CPU, cache_bytes_per_s=math.inf)


def stepping_s(job: Workload) -> float:
    """Return the seconds of all steps on Lambda."""
    return job.total_steps * job.step_s / SHARE


@pytest.mark.parametrize("step_s", [2e-5, 2e-4, 6e-4, 2e-3])
@pytest.mark.parametrize("num_actors", [8, 16, 64, 256, 460])
@pytest.mark.parametrize("learner", [CPU, LARGE_CACHE], ids=["default cache", "large cache"])
def test_no_way_is_faster_or_cheaper_than_its_steps(
    num_actors: int, step_s: float, learner: Learner
) -> None:
    job = a_search(step_s=step_s)
    found = ways(job, (learner,), cores_here=2, actors_here=8, actors=(num_actors,))
    planned = [way for way in found if way.place == "serverless"]
    each_s = math.ceil(460 / num_actors) * 500 * step_s / SHARE
    assert len(planned) == (each_s < TIMEOUT_S), "an iteration has to end in time"
    for way in planned:
        assert way.wall_s >= stepping_s(job) / num_actors
        assert way.usd >= stepping_s(job) * MEMORY_MB / 1024 * USD_PER_GB_S


def test_twice_the_actors_take_less_time_while_steps_take_most_of_it() -> None:
    job = a_search()
    times_s = [serverless(job, LARGE_CACHE, num).wall_s for num in (8, 16, 32, 64, 128, 256)]
    for few_s, more_s in zip(times_s, times_s[1:], strict=False):
        assert more_s < 0.75 * few_s


def test_a_round_on_functions_ends_before_their_time_out() -> None:
    # 29 episodes of 0.52 s on Lambda: 15 s an iteration.
    job, num = a_search(), 16
    iteration_s = 29 * 500 * 6e-4 / SHARE + 0.04
    begun = [k for k in range(1, 10) if k * iteration_s + 2 * iteration_s <= TIMEOUT_S]
    assert begun == [1], "it would end the second after 30 s, and has no time for twice 15 s"
    rounds = 310 / 2
    took_s = serverless_rounds(job, at_once(LARGE_CACHE), num).wall_s
    assert took_s == pytest.approx(rounds * 2 * iteration_s, rel=0.005)


def test_short_iterations_share_a_round_and_its_launch() -> None:
    quick = a_search(step_s=2e-5)
    in_ten = serverless_rounds(quick, at_once(LARGE_CACHE), 64)
    in_one = serverless_rounds(quick.with_iterations(1), at_once(LARGE_CACHE), 64)
    launches_s = (310 - 31) * 64 * 0.001
    assert in_one.wall_s - in_ten.wall_s > launches_s


@pytest.mark.parametrize(("iteration_s", "begun_s"), [(5.0, 0.0), (5.0, 4.0), (19.0, 1.0), (50, 0)])
def test_an_iteration_begins_only_with_time_for_twice_the_mean(
    iteration_s: float, begun_s: float
) -> None:
    age_s, done = begun_s + iteration_s, 1
    while done < 100 and age_s + 2 * (age_s / done) <= TIMEOUT_S:
        age_s, done = age_s + iteration_s, done + 1
    found = iterations_in_time(100, begun_s=begun_s, iteration_s=iteration_s, timeout_s=TIMEOUT_S)
    assert found == done
    assert age_s <= TIMEOUT_S


def test_actors_wait_for_the_policies_that_all_of_them_fetch() -> None:
    job, num, rate = a_search(), 460, 8e6
    assert CPU.cache_bytes_per_s == rate
    slow, fast = (serverless_rounds(job, at_once(each), num) for each in (CPU, LARGE_CACHE))
    waited_s = 31 * 9 * num * 27_000 / rate  # the launch hides the first of a round
    assert slow.wall_s - fast.wall_s == pytest.approx(waited_s, rel=0.01)
    billed_usd = num * waited_s * USD_PER_GB_S
    held_usd = waited_s * CPU.basis.base_usd_per_s
    assert slow.usd - fast.usd == pytest.approx(billed_usd + held_usd, rel=0.05)


def test_where_nothing_times_out_a_round_has_all_iterations() -> None:
    job = a_search()
    here = this_machine(job, CPU.basis, cores=2, num_actors=8)
    each_s = 0.003 + 9 * 0.04 + 10 * math.ceil(460 / 8) * 500 * 6e-4
    assert here.wall_s == pytest.approx(31 * (each_s * 8 / 2 + 0.05), rel=0.01)


def test_numbers_of_actors_to_compare_have_steps_for_each() -> None:
    found = ways(a_search(), (CPU,), cores_here=2, actors_here=8)
    assert {way.num_actors for way in found if way.place == "serverless"} == {
        num for num in ACTORS if num <= 460
    }
