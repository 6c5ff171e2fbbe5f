"""The two estimates against gradients formed one by one, and against a known distribution."""

import numpy as np
import pytest
import torch
from torch import Tensor

from services.learner.gradient_noise import gradient_noise, gradient_products
from services.learner.surrogate import PolicySurrogate
from shared.environment_spec import EnvironmentSpec
from shared.ppo_hyperparameters import PpoHyperparameters
from tests.services.learner.test_surrogate import (
    CASES,
    network_of,
    samples_of,
    surrogate_log_prob,
)


def sample_gradients(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters
) -> tuple[PolicySurrogate, Tensor]:
    """A surrogate, and each sample's contribution to its gradient by autograd # [N, P]."""
    network = network_of(environment, hyperparameters, torch.float64)
    observation, action, advantage = samples_of(environment, torch.float64)
    log_prob, start = surrogate_log_prob(network, observation, action)
    jacobian: Tensor = torch.autograd.functional.jacobian(  # type: ignore[no-untyped-call]
        log_prob, start
    )
    surrogate = PolicySurrogate(
        network, observation=observation, action=action, advantage=advantage
    )
    return surrogate, advantage.unsqueeze(1) * jacobian / len(advantage)


@pytest.mark.parametrize(("environment", "hyperparameters"), CASES)
def test_products_are_those_of_the_samples_gradients(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters
) -> None:
    surrogate, gradients = sample_gradients(environment, hyperparameters)
    torch.testing.assert_close(surrogate.gradient_products(), gradients @ gradients.t())


@pytest.mark.parametrize(("environment", "hyperparameters"), CASES)
def test_estimates_agree_with_gradients_of_each_trajectory(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters
) -> None:
    surrogate, gradients = sample_gradients(environment, hyperparameters)
    found = gradient_noise(surrogate.gradient_products(), torch.arange(40) // 10)
    big = gradients.sum(0).square().sum().item()
    small = np.mean(
        [(4 * part.sum(0)).square().sum().item() for part in torch.split(gradients, 10)]
    )
    assert found is not None
    assert found.squared_norm == pytest.approx((40 * big - 10 * small) / (40 - 10))
    assert found.variance == pytest.approx((small - big) / (1 / 10 - 1 / 40))


def test_estimates_of_a_known_distribution_are_unbiased() -> None:
    # Per-sample gradients N(mean, diag(std^2)): |G|^2 = |mean|^2 and S = sum std^2.
    rng = np.random.default_rng(0)
    mean, std = np.array([1.0, -2.0, 0.5]), np.array([3.0, 1.0, 2.0])
    trajectory = torch.arange(64) // 8
    found = []
    for _ in range(2000):
        gradients = torch.from_numpy(rng.normal(mean, std, size=(64, 3)) / 64)
        noise = gradient_noise(gradients @ gradients.t(), trajectory)
        assert noise is not None
        found.append((noise.squared_norm, noise.variance))
    error = np.std(found, axis=0) / np.sqrt(len(found))
    distance = np.abs(np.mean(found, axis=0) - ((mean**2).sum(), (std**2).sum()))
    assert (distance < 4 * error).all()


def test_trajectories_of_unequal_size_and_unused_indices_are_counted_as_they_are() -> None:
    rng = np.random.default_rng(1)
    gradients = torch.from_numpy(rng.normal(size=(11, 4)) / 11)
    trajectory = torch.tensor([0] * 4 + [3] * 4 + [5] * 3)
    found = gradient_noise(gradients @ gradients.t(), trajectory)
    means = [11 / n * gradients[trajectory == i].sum(0) for i, n in ((0, 4), (3, 4), (5, 3))]
    small = np.mean([mean.square().sum().item() for mean in means])
    big = gradients.sum(0).square().sum().item()
    variance = (small - big) / (np.mean([1 / 4, 1 / 4, 1 / 3]) - 1 / 11)
    assert found is not None
    assert found.variance == pytest.approx(variance)
    assert found.squared_norm == pytest.approx(big - variance / 11)


def test_equal_gradients_have_no_noise() -> None:
    found = gradient_noise(torch.full((12, 12), 4.0 / 144), torch.arange(12) // 3)
    assert found is not None
    assert found.squared_norm == pytest.approx(4.0, rel=1e-5)
    assert found.variance == pytest.approx(0.0, abs=1e-4)


def test_one_trajectory_says_nothing_about_noise() -> None:
    assert gradient_noise(torch.ones(5, 5), torch.zeros(5, dtype=torch.int64)) is None


def test_gradients_that_are_not_finite_have_no_estimate() -> None:
    products = torch.ones(4, 4)
    products[0, 1] = float("nan")
    assert gradient_noise(products, torch.tensor([0, 0, 1, 1])) is None


def test_a_layer_counts_its_weights_and_its_bias() -> None:
    h, delta = torch.tensor([[2.0], [3.0]]), torch.tensor([[5.0], [7.0]])
    # gradients (weight, bias): (10, 5) and (21, 7)
    expected = torch.tensor([[125.0, 245.0], [245.0, 490.0]])
    torch.testing.assert_close(gradient_products([h], [delta]), expected)
