"""Recorded runs at other prices, beside bills made by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from experiments.outcome import JobOutcome
from experiments.repricing import Regime, censored_median, regrets, reprice, updates_to
from tests.experiments.made_up import outcome

ACTORS = (4, 8, 2)
REGIME = Regime(
    name="as it was",
    learner_usd_per_s=0.02,
    others_usd_per_s=0.003,
    warm_usd_per_s=0.001,
    execution_usd_per_gb_s=0.5,
    request_usd=0.25,
    memory_gb=1.0,
)
SECONDS = (3.0, 5.0, 2.0)


def a_run() -> JobOutcome:
    """Three rounds of known seconds and GB-seconds, billed at the regime's prices."""
    made = outcome([0.0, 10.0, 20.0, 30.0], actors=ACTORS)
    gb_s = tuple(n * 0.5 for n in ACTORS)
    usd = [
        s * REGIME.held_usd_per_s + g * 0.5 + n * 0.25
        for s, g, n in zip(SECONDS, gb_s, ACTORS, strict=True)
    ]
    return made.model_copy(
        update={
            "rounds": tuple(
                each.model_copy(update={"cost_usd": cost})
                for each, cost in zip(made.rounds, usd, strict=True)
            ),
            "by_item": {
                "learner": sum(SECONDS) * 0.02,
                "cache": sum(SECONDS) * 0.003,
                "provisioned_concurrency": sum(SECONDS) * 0.001,
                "lambda_duration": sum(gb_s) * 0.5,
                "lambda_requests": sum(ACTORS) * 0.25,
            },
            "total_usd": sum(usd),
            "lambda_gb_s": sum(gb_s),
            "lambda_requests": float(sum(ACTORS)),
            "projected_wall_s": sum(SECONDS),
        }
    )


def test_at_its_own_prices_a_run_costs_what_it_did() -> None:
    run = a_run()
    spent = reprice(run, REGIME, steps_per_actor=256)
    assert spent.seconds == pytest.approx((0.0, 3.0, 8.0, 10.0))
    assert spent.usd[-1] == pytest.approx(run.total_usd)


def test_other_prices_change_their_own_part_alone() -> None:
    cheap = replace(REGIME, learner_usd_per_s=0.002, warm_usd_per_s=0.0, request_usd=0.0)
    spent = reprice(a_run(), cheap, steps_per_actor=256)
    assert spent.usd == pytest.approx((0.0, 1.015, 3.04, 3.55))


def test_a_slow_simulator_makes_rounds_longer_and_steps_dearer() -> None:
    slow = replace(REGIME, extra_step_s=0.01)
    quick, spent = (reprice(a_run(), regime, steps_per_actor=100) for regime in (REGIME, slow))
    assert spent.seconds == pytest.approx((0.0, 4.0, 10.0, 13.0))
    # A second more of each round, and 0.01 GB-seconds more of each of 256 steps an actor.
    more = 3 * REGIME.held_usd_per_s + sum(ACTORS) * 256 * 0.01 * 0.5
    assert spent.usd[-1] - quick.usd[-1] == pytest.approx(more)


def test_a_bill_without_seconds_is_refused() -> None:
    free = a_run().model_copy(update={"by_item": {"lambda_duration": 1.0}})
    with pytest.raises(ValueError, match="no learner"):
        reprice(free, REGIME, steps_per_actor=256)


def test_the_first_evaluation_that_has_the_return_counts() -> None:
    run = outcome([0.0, 30.0, 20.0, 40.0])
    assert updates_to(run, 25.0) == 1
    assert updates_to(run, 35.0) == 3
    assert updates_to(run, 50.0) is None
    assert updates_to(run, 35.0, most_steps=2 * 8 * 256) is None


def test_the_start_of_the_machine_is_waited_and_paid_for() -> None:
    late = replace(REGIME, start_s=10.0)
    spent = reprice(a_run(), late, steps_per_actor=256)
    assert (spent.seconds[0], spent.usd[0]) == pytest.approx((10.0, 10.0 * 0.02))
    assert spent.usd[-1] == pytest.approx(a_run().total_usd + 0.2)


def test_regret_is_the_worst_over_regimes_beside_the_best_of_each() -> None:
    spent = {
        "dear": {"two": [2.0] * 6, "four": [4.0] * 6, "chooser": [3.0] * 6, "alone": [1.0] * 6},
        "cheap": {"two": [9.0] * 6, "four": [3.0] * 6, "chooser": [3.0] * 6, "alone": [1.5] * 6},
    }
    found = regrets(spent, ("two", "four"))
    assert {name: of["worst"].value for name, of in found.items()} == {
        "two": 3.0,
        "four": 2.0,
        "chooser": 1.5,
        "alone": 0.5,
    }
    assert found["chooser"]["dear"].value == 1.5
    nobody = {"dear": {"two": [math.inf], "chooser": [1.0], "lost": [math.inf]}}
    found = regrets(nobody, ("two",))
    assert [found[name]["worst"].value for name in nobody["dear"]] == [math.inf, 0.0, math.inf]


def test_an_interval_of_a_regret_has_the_luck_of_the_best_numbers_choice_in_it() -> None:
    rng = np.random.default_rng(1)
    spent = {"one": {name: list(1 + rng.random(9)) for name in ("two", "four", "chooser")}}
    found = regrets(spent, ("two", "four"))["chooser"]["worst"]
    assert found.low < found.value < found.high


def test_runs_that_never_came_there_count_as_the_dearest() -> None:
    assert str(censored_median([2.0])) == "2"
    assert censored_median([1.0, 2.0, math.inf]).value == 2.0
    assert str(censored_median([1.0, math.inf, math.inf])).startswith("never [1, never]")
    found = censored_median([float(value) for value in range(101)])
    assert found.value == 50.0
    # The median's standard error is 1.25 standard deviations over the root of 101: 3.6.
    assert 38.0 < found.low < 46.0
    assert 54.0 < found.high < 62.0
