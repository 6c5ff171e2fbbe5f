"""Curvature in two halves: the whole's up to rounding, and the same bits on any number of cores."""

import os

import pytest
import torch

from services.learner.batch import build_batch
from services.learner.curvature import LossTerms, measure_curvature
from services.learner.halved_surrogate import HalvedSurrogate, halved_surrogate
from services.learner.second_lane import SecondLane
from services.learner.surrogate import PolicySurrogate
from shared.environment_spec import EnvironmentSpec
from shared.job_spec import DetectorRule
from shared.ppo_hyperparameters import PpoHyperparameters
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
            halved = halved_surrogate(
                network, observation=observation, action=action, advantage=advantage, lane=helper
            )
            assert isinstance(halved, HalvedSurrogate)
            found.append(halved.hessian_product(direction))
    torch.testing.assert_close(found[0], expected, rtol=1e-10, atol=1e-12)
    assert torch.equal(found[0], found[1])


def test_small_networks_are_not_halved() -> None:
    hyperparameters = PpoHyperparameters(hidden_sizes=(8, 8))
    network = network_of(CONTINUOUS, hyperparameters, torch.float32)
    observation, action, advantage = samples_of(CONTINUOUS, torch.float32, ODD)
    surrogate = halved_surrogate(
        network, observation=observation, action=action, advantage=advantage, lane=None
    )
    assert isinstance(surrogate, PolicySurrogate)


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
    for count in (1, 2):
        usable = set(range(count))
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=usable: cores, raising=False)
        loss = LossTerms(hyperparameters=LARGE, kl_coefficient=0.2)
        curvature = measure_curvature(network, batch, rule=rule, loss=loss)
        assert curvature is not None
        found.append(curvature.model_copy(update={"elapsed_s": 0.0}))
    assert found[0] == found[1]
