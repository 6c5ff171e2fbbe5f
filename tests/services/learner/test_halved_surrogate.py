"""Curvature in two halves: the whole's up to rounding, and the same bits on any number of cores."""

import math
import os
import sys
from itertools import count

import pytest
import torch

from services.learner import second_lane
from services.learner.batch import build_batch
from services.learner.curvature import LossTerms, measure_curvature
from services.learner.halved_surrogate import (
    HalvedSurrogate,
    Samples,
    SecondHalf,
    halved_surrogate,
    second_process_pays,
)
from services.learner.second_lane import SecondLane
from services.learner.second_process import SecondProcess
from services.learner.surrogate import PolicySurrogate
from shared.environment_spec import EnvironmentSpec
from shared.job_spec import DetectorRule
from shared.ppo_hyperparameters import STANDARD, PpoHyperparameters
from tests.services.learner.test_surrogate import network_of, samples_of
from tests.services.learner.trajectories import CONTINUOUS, DISCRETE, make_trajectory

LARGE = PpoHyperparameters(hidden_sizes=(256, 256))
LARGE_FREE = PpoHyperparameters(hidden_sizes=(256, 256), log_std="free")
CASES = [(CONTINUOUS, LARGE), (CONTINUOUS, LARGE_FREE), (DISCRETE, LARGE)]
ODD = 131
"""Samples of which the halves differ in size."""


@pytest.mark.parametrize(("environment", "hyperparameters"), CASES)
def test_two_halves_make_the_whole(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters
) -> None:
    network = network_of(environment, hyperparameters, torch.float64)
    observation, action, advantage = samples_of(environment, torch.float64, ODD)
    whole = PolicySurrogate(network, observation=observation, action=action, advantage=advantage)
    direction = torch.randn(
        whole.size, generator=torch.Generator().manual_seed(3), dtype=torch.float64
    )
    expected = whole.hessian_product(direction)
    with SecondLane() as lane:
        found = []
        for helper in (None, lane):
            samples = Samples(observation, action, advantage)
            halved = halved_surrogate(network, samples, helper)
            assert isinstance(halved, HalvedSurrogate)
            found.append(halved.hessian_product(direction))
    torch.testing.assert_close(found[0], expected, rtol=1e-10, atol=1e-12)
    assert torch.equal(found[0], found[1])


def test_small_networks_are_not_halved() -> None:
    hyperparameters = PpoHyperparameters(hidden_sizes=(8, 8))
    network = network_of(CONTINUOUS, hyperparameters, torch.float32)
    observation, action, advantage = samples_of(CONTINUOUS, torch.float32, ODD)
    samples = Samples(observation, action, advantage)
    assert isinstance(halved_surrogate(network, samples, None), PolicySurrogate)
    assert not second_process_pays(network, ODD)


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks safely")


@LINUX
@pytest.mark.parametrize(("environment", "hyperparameters"), [*CASES, (CONTINUOUS, STANDARD)])
@pytest.mark.parametrize("objective", ["surrogate", "behaviour"])
def test_a_second_process_changes_no_bit(
    environment: EnvironmentSpec,
    hyperparameters: PpoHyperparameters,
    objective: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = network_of(environment, hyperparameters, torch.float32)
    trajectories = [
        make_trajectory(environment, network, actor_index=i, num_steps=200) for i in range(2)
    ]
    batch = build_batch(trajectories, network, discount=0.99, gae_lambda=1.0)
    rule = DetectorRule.model_validate({"objective": objective, "max_matvecs": 6, "probes": 2})
    loss = LossTerms(hyperparameters=hyperparameters, kl_coefficient=0.2)
    process, calls = SecondProcess(), count()
    whole = process.both
    monkeypatch.setattr(process, "both", lambda *work: (whole(*work), next(calls))[0])
    try:
        found = []
        for helper in (None, process, process):
            curvature = measure_curvature(network, batch, rule=rule, loss=loss, process=helper)
            assert curvature is not None
            found.append(curvature.model_copy(update={"elapsed_s": 0.0}))
        assert found[0] == found[1] == found[2]
        assert next(calls) == 2
        # Not finite is no curvature, and no reason to lose the process.
        network.flat[network.views_of(network.flat)["policy.0.weight"].storage_offset()] = math.nan
        assert measure_curvature(network, batch, rule=rule, loss=loss, process=process) is None
        assert process.usable
    finally:
        process.close()


@LINUX
@pytest.mark.parametrize("how", ["ends", "raises"])
def test_a_measurement_that_loses_the_process_is_made_without_it(
    how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    network = network_of(CONTINUOUS, LARGE, torch.float32)
    trajectories = [
        make_trajectory(CONTINUOUS, network, actor_index=i, num_steps=200) for i in range(2)
    ]
    batch = build_batch(trajectories, network, discount=0.99, gae_lambda=1.0)
    expected = measure_curvature(network, batch, rule=DetectorRule())
    monkeypatch.setattr(SecondHalf, "__call__", ended if how == "ends" else failed)
    process = SecondProcess()
    found = measure_curvature(network, batch, rule=DetectorRule(), process=process)
    assert expected is not None
    assert found is not None
    assert (found.lambda_max, found.lambda_min) == (expected.lambda_max, expected.lambda_min)
    assert not process.usable
    (record,) = caplog.records
    assert ("ended with 3" if how == "ends" else "on purpose") in record.__dict__["why"]


def ended(*_: object) -> None:
    os._exit(3)


def failed(*_: object) -> None:
    raise ZeroDivisionError("on purpose")


@pytest.mark.parametrize("objective", ["surrogate", "behaviour"])
def test_a_measurement_has_the_same_bits_on_one_core_and_on_two(
    objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = network_of(CONTINUOUS, LARGE, torch.float32)
    trajectories = [
        make_trajectory(CONTINUOUS, network, actor_index=i, num_steps=200) for i in range(2)
    ]
    batch = build_batch(trajectories, network, discount=0.99, gae_lambda=1.0)
    rule = DetectorRule.model_validate({"objective": objective, "max_matvecs": 6})
    found = []
    for num_cores in (1, 2):
        monkeypatch.setattr(second_lane, "usable_cores", lambda cores=num_cores: cores)
        loss = LossTerms(hyperparameters=LARGE, kl_coefficient=0.2)
        curvature = measure_curvature(network, batch, rule=rule, loss=loss)
        assert curvature is not None
        found.append(curvature.model_copy(update={"elapsed_s": 0.0}))
    assert found[0] == found[1]
