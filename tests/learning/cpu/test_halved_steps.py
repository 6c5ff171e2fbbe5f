"""Updates with a second process against updates without: the same bits, whatever happens."""

import itertools
import math
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from learning.algorithms import network_steps, ppo
from learning.algorithms.impact import Impact
from learning.algorithms.impala import Impala
from learning.algorithms.network_steps import NetworkSteps
from learning.algorithms.ppo import Ppo
from learning.cpu.halved_steps import MIN_MULTIPLICATIONS, take_halved_steps
from learning.cpu.second_process import SecondProcess
from learning.data.batch_building import on_policy_batch
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.impact import STANDARD as IMPACT
from shared.hyperparameters.impala import STANDARD as IMPALA
from shared.hyperparameters.ppo import STANDARD, PpoHyperparameters
from shared.trajectory.columns import Columns
from tests.learning.algorithms.off_policy_rounds import Learner, assert_same_state
from tests.learning.algorithms.test_ppo import (
    CASES,
    CLEAN,
    FREE,
    SMALL,
    round_of,
)
from tests.learning.trajectories import CONTINUOUS, DISCRETE, make_trajectory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks safely")
GAUSSIAN = [hyperparameters for environment, hyperparameters in CASES if environment is CONTINUOUS]
WITH_ENTROPY = FREE.model_copy(update={"entropy_coefficient": 0.1})


@pytest.fixture
def halved(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One entry for every update that was taken in halves."""
    taken: list[bool] = []

    def counted(*args: object) -> object:
        result = take_halved_steps(*args)  # type: ignore[arg-type]
        taken.append(True)
        return result

    monkeypatch.setattr(network_steps, "take_halved_steps", counted)
    return taken


def pair(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters, process: SecondProcess
) -> tuple[Ppo, Ppo]:
    alone = Ppo(environment, hyperparameters, seed=7, max_rounds=8)
    steps = NetworkSteps.beside(process)
    return alone, Ppo(environment, hyperparameters, seed=7, max_rounds=8, steps=steps)


def assert_equal_updates(
    hyperparameters: PpoHyperparameters, process: SecondProcess, *, rounds: int
) -> None:
    """Learn from the same rounds with the second process and without."""
    alone, beside = pair(CONTINUOUS, hyperparameters, process)
    for k in range(rounds):
        trajectories = round_of(alone, CONTINUOUS, k)
        assert alone.learn(trajectories).stats == beside.learn(trajectories).stats
        assert_same_state(alone, beside)


@pytest.mark.parametrize("hyperparameters", [*GAUSSIAN, WITH_ENTROPY])
def test_the_bits_are_those_of_one_process(
    hyperparameters: PpoHyperparameters, process: SecondProcess, halved: list[bool]
) -> None:
    assert_equal_updates(hyperparameters, process, rounds=3)
    assert halved == [True] * 3


@pytest.mark.usefixtures("large")  # before the process is forked
@pytest.mark.parametrize("hyperparameters", GAUSSIAN)
def test_so_they_are_of_large_networks(
    hyperparameters: PpoHyperparameters,
    process: SecondProcess,
    halved: list[bool],
) -> None:
    assert_equal_updates(hyperparameters, process, rounds=2)
    assert halved == [True] * 2


def assert_equal_off_policy_updates(
    build: Callable[..., Learner], hyperparameters: Any, process: SecondProcess
) -> None:
    """Do as `assert_equal_updates` does with IMPACT or IMPALA."""
    alone = build(CONTINUOUS, hyperparameters, seed=7)
    beside = build(CONTINUOUS, hyperparameters, seed=7, steps=NetworkSteps.beside(process))
    for k in range(2):
        trajectories = [
            make_trajectory(CONTINUOUS, alone.network, actor_index=i, seed=k) for i in range(2)
        ]
        for learner in (alone, beside):
            learner.add(trajectories)
            learner.flush()
        while alone.ready:
            assert alone.update().stats == beside.update().stats
        assert_same_state(alone, beside)


@pytest.mark.parametrize("build", [Impact, Impala])
def test_so_they_are_of_off_policy_learners(
    build: Callable[..., Learner], process: SecondProcess, halved: list[bool]
) -> None:
    update = {"hidden_sizes": (16, 16), "train_batch_size": 96, "minibatch_size": 20}
    preset = IMPACT if build is Impact else IMPALA
    assert_equal_off_policy_updates(build, preset.model_copy(update=update), process)
    assert halved


def with_a_target_that_is_no_number(*args: Any, **kwargs: Any) -> Columns[Tensor]:
    batch = on_policy_batch(*args, **kwargs)
    batch.value_target[3] = math.nan
    return batch


def assert_spoilt_steps_are_left_out(
    which: str, process: SecondProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learn from samples of which one leaves one half of its steps without a finite gradient."""
    update = {"minibatch_size": 1, "num_epochs": 2, "learning_rate": 1e-6}
    alone, beside = pair(CONTINUOUS, SMALL.model_copy(update=update), process)
    trajectories = round_of(alone, CONTINUOUS, 0)
    if which == "policy":
        trajectories[0].action[3, 0] = 1e30  # squares to infinity in the normal density
    else:
        monkeypatch.setattr(ppo, "on_policy_batch", with_a_target_that_is_no_number)
    stats = alone.learn(trajectories).stats
    assert stats["skipped_steps"] == 2
    assert beside.learn(trajectories).stats == stats
    assert_same_state(alone, beside)


@pytest.mark.parametrize("which", ["policy", "value"])
def test_a_step_that_one_half_cannot_take_is_left_out_by_both(
    which: str, process: SecondProcess, halved: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_spoilt_steps_are_left_out(which, process, monkeypatch)
    assert halved


def test_no_finite_step_is_the_same_error(process: SecondProcess, halved: list[bool]) -> None:
    alone, beside = pair(CONTINUOUS, CLEAN, process)
    trajectories = round_of(alone, CONTINUOUS, 0)
    for trajectory in trajectories:
        trajectory.action[:] = 1e30
    for one in (alone, beside):
        with pytest.raises(FloatingPointError, match="all 24 steps"):
            one.learn(trajectories)
    assert_same_state(alone, beside)
    assert halved


def assert_a_lost_process_is_done_without(
    turn: int, process: SecondProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learn from three rounds, in the second of which the process is killed at some turn."""
    alone, beside = pair(CONTINUOUS, SMALL, process)
    for k in range(3):
        if k == 1:
            kill_at_turn(process, turn, monkeypatch)
        trajectories = round_of(alone, CONTINUOUS, k)
        assert alone.learn(trajectories).stats == beside.learn(trajectories).stats
        assert_same_state(alone, beside)
        assert process.usable is (k == 0)


def test_an_update_that_loses_the_process_is_done_without_it(
    process: SecondProcess, monkeypatch: pytest.MonkeyPatch, halved: list[bool]
) -> None:
    assert_a_lost_process_is_done_without(5, process, monkeypatch)
    assert halved == [True]


def kill_at_turn(process: SecondProcess, turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill it from within our half of the next update."""
    swap, turns = process._side.swap, itertools.count()

    def kill_and_swap(number: float) -> float:
        if next(turns) == turn:
            assert process._process.pid is not None
            os.kill(process._process.pid, signal.SIGKILL)
        return swap(number)

    monkeypatch.setattr(process._side, "swap", kill_and_swap)


def test_what_has_no_halves_or_is_too_small_goes_its_old_way(
    process: SecondProcess, monkeypatch: pytest.MonkeyPatch, halved: list[bool]
) -> None:
    for environment, hyperparameters in ((DISCRETE, SMALL), (DISCRETE, CLEAN)):
        alone, beside = pair(environment, hyperparameters, process)
        trajectories = round_of(alone, environment, 0)
        assert alone.learn(trajectories).stats == beside.learn(trajectories).stats
    monkeypatch.setattr(network_steps, "MIN_MULTIPLICATIONS", MIN_MULTIPLICATIONS)
    alone, beside = pair(CONTINUOUS, STANDARD, process)
    trajectories = round_of(alone, CONTINUOUS, 0)
    assert alone.learn(trajectories).stats == beside.learn(trajectories).stats
    assert not halved
