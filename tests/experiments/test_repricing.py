"""Recorded runs at other prices, beside bills made by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from experiments.durations import Durations
from experiments.repricing import (
    Made,
    Regime,
    censored_median,
    on_best_server,
    on_own_cores,
    regrets,
    reprice,
    updates_to,
)
from nitro.planning.prices import cost_basis
from shared.deployment.config import NitroConfig
from tests.experiments.made_up import MACHINE, outcome

ACTORS = (4, 8, 2)
BASIS = replace(
    cost_basis(NitroConfig()),
    learner_usd_per_s=0.02,
    cache_usd_per_s=0.002,
    scaler_usd_per_s=0.001,
    cold_start_s=2.0,
    memory_mb=1769,
    ping_every_s=math.inf,
)
"""An actor has a whole core, and nothing is pinged."""
REGIME = Regime(name="any", basis=BASIS, learner="cpu")
DURATIONS = Durations(
    step_s=0.001,
    reset_s=0.5,
    call_s=0.1,
    update_fixed_s=1.0,
    gradient_step_s=0.01,
    measuring_s=0.2,
    num_epochs=10,
    minibatch_size=64,
    bytes_per_sample=0.0,
    environment=MACHINE,
)
GB = 1769 / 1024


def a_run() -> Made:
    """Three rounds of 4, 8 and 2 actors with 256 steps each; beside the last, an evaluation."""
    run = outcome([0.0, 10.0, 20.0, 30.0], actors=ACTORS)
    last = run.rounds[-1].model_copy(update={"evaluated_steps": (300, 1000)})
    return Made(
        run=run.model_copy(update={"rounds": (*run.rounds[:-1], last)}), durations=DURATIONS
    )


def learner_s(num_actors: int) -> float:
    """Ten passes over minibatches of 64, one measurement, one checkpoint."""
    return 0.6 * (1.0 + 0.01 * 10 * num_actors * 4) + 0.2 + 0.008


SECONDS = (
    # Plan, a request every millisecond, cold starts, 256 steps, the learner.
    0.012 + 0.004 + 2.0 + 0.356 + learner_s(4),
    0.012 + 0.008 + 2.0 + 0.356 + learner_s(8),
    # Two more invocations than actors, and fewer than before. The longest episode takes 1.6 s.
    0.012 + 0.004 + max(0.356 + learner_s(2), 1.6),
)
LOOK_S = 0.012 + 0.002 + 1.6


def test_a_round_takes_what_its_counts_times_the_durations_are() -> None:
    spent = reprice(a_run(), REGIME)
    assert spent.seconds[0] == 0.0
    assert spent.seconds[1] == pytest.approx(SECONDS[0])
    assert spent.seconds[2] == pytest.approx(sum(SECONDS[:2]) + LOOK_S)
    assert spent.seconds[3] == pytest.approx(sum(SECONDS))


def test_a_round_costs_its_seconds_its_executions_and_its_requests() -> None:
    spent = reprice(a_run(), REGIME)
    prices = BASIS.prices
    # Four rollouts of 0.356 s, and as many starts of two seconds.
    gb_s = 4 * (0.356 + 2.0) * GB
    first_usd = SECONDS[0] * 0.023 + gb_s * prices.lambda_usd_per_gb_s
    first_usd += 4 * prices.lambda_usd_per_request
    assert spent.usd[1] == pytest.approx(first_usd)
    looked_gb_s = (0.9 + 1.6) * GB
    look_usd = LOOK_S * 0.023 + looked_gb_s * prices.lambda_usd_per_gb_s
    look_usd += 2 * prices.lambda_usd_per_request
    second_gb_s = (8 * 0.356 + 4 * 2.0) * GB
    second_usd = SECONDS[1] * 0.023 + second_gb_s * prices.lambda_usd_per_gb_s
    second_usd += 8 * prices.lambda_usd_per_request
    assert spent.usd[2] == pytest.approx(first_usd + second_usd + look_usd)


def test_provisioned_environments_are_paid_by_the_second_and_never_cold() -> None:
    provisioned = replace(REGIME, basis=replace(BASIS, provisioned=8))
    spent, before = reprice(a_run(), provisioned), reprice(a_run(), REGIME)
    assert spent.seconds[2] == pytest.approx(before.seconds[2] - 4.0)
    prices = BASIS.prices
    first_usd = (SECONDS[0] - 2.0) * (0.023 + 8 * GB * prices.provisioned_usd_per_gb_s)
    first_usd += 4 * 0.356 * GB * prices.provisioned_duration_usd_per_gb_s
    first_usd += 4 * prices.lambda_usd_per_request
    assert spent.usd[1] == pytest.approx(first_usd)


def test_an_actor_with_half_a_core_takes_twice_as_long() -> None:
    half = replace(REGIME, basis=replace(BASIS, memory_mb=1769 // 2 + 1))
    more_s = reprice(a_run(), half).seconds[1] - SECONDS[0]
    assert more_s == pytest.approx(0.356, rel=0.01)


def test_a_gpu_makes_updates_shorter_and_measuring_less_so() -> None:
    gpu = reprice(a_run(), replace(REGIME, learner="gpu"))
    update_s = 1.0 + 0.01 * 160
    shorter_s = 0.6 * update_s - update_s / 6.7 + 0.2 - 0.2 / 2.7
    assert gpu.seconds[1] == pytest.approx(SECONDS[0] - shorter_s)


def test_a_slow_simulator_makes_training_longer_and_evaluations_not() -> None:
    slow = reprice(a_run(), replace(REGIME, extra_step_s=0.01))
    assert slow.seconds[1] == pytest.approx(SECONDS[0] + 2.56)
    assert slow.seconds[2] - slow.seconds[1] == pytest.approx(SECONDS[1] + 2.56 + LOOK_S)


def test_more_measuring_and_a_given_number_of_gradient_steps_are_the_learners() -> None:
    noisy = reprice(replace(a_run(), measurements=2.0), REGIME)
    assert noisy.seconds[1] == pytest.approx(SECONDS[0] + 0.2)
    fewer = reprice(replace(a_run(), gradient_steps=10), REGIME)
    assert fewer.seconds[1] == pytest.approx(SECONDS[0] - 0.6 * 0.01 * 150)


def test_the_best_server_boots_and_shares_its_cores() -> None:
    # Four actors of 0.356 s on four cores or more; the learner has two of them.
    seconds = 60.0 + 0.012 + 0.356 + learner_s(4)
    usd_per_s = min(map(BASIS.prices.server_usd_per_s, BASIS.prices.server_usd_per_hour))
    assert on_best_server(a_run(), REGIME, updates=1) == pytest.approx(seconds * usd_per_s)


def test_own_cores_share_the_actors_and_pay_no_function() -> None:
    # Four actors of 0.356 s on two cores.
    seconds = 0.012 + 2 * 0.356 + learner_s(4)
    usd = 10.0 * 0.02 + seconds * (0.02 + 0.002 + 0.001)
    assert on_own_cores(a_run(), REGIME, updates=1, start_s=10.0) == pytest.approx(usd)


def test_the_start_of_the_machine_is_waited_and_paid_for() -> None:
    late = reprice(a_run(), replace(REGIME, start_s=10.0))
    before = reprice(a_run(), REGIME)
    assert (late.seconds[0], late.usd[0]) == pytest.approx((10.0, 10.0 * 0.02))
    assert late.usd[-1] == pytest.approx(before.usd[-1] + 0.2)


def test_the_first_evaluation_that_has_the_return_counts() -> None:
    run = outcome([0.0, 30.0, 20.0, 40.0])
    assert updates_to(run, 25.0) == 1
    assert updates_to(run, 35.0) == 3
    assert updates_to(run, 50.0) is None
    assert updates_to(run, 35.0, most_steps=2 * 8 * 256) is None


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
