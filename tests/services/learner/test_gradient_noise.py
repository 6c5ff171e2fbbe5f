"""The two estimates against gradients formed one by one, and against a known distribution."""

import numpy as np
import pytest
import torch
from torch import Tensor

from services.learner.gradient_noise import Shares, gradient_noise, squared_norms
from services.learner.surrogate import PolicySurrogate
from shared.contracts import GradientNoise
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


@pytest.mark.parametrize("num_trajectories", [1, 4, 40])
@pytest.mark.parametrize(("environment", "hyperparameters"), CASES)
def test_norms_are_those_of_the_samples_gradients(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters, num_trajectories: int
) -> None:
    surrogate, gradients = sample_gradients(environment, hyperparameters)
    found = surrogate.shares(num_trajectories)
    shares = torch.stack([part.sum(0) for part in gradients.chunk(num_trajectories)])
    torch.testing.assert_close(found.squared_norms, shares.square().sum(1))
    torch.testing.assert_close(found.gradient, gradients.sum(0))


@pytest.mark.parametrize(("environment", "hyperparameters"), CASES)
def test_estimates_agree_with_gradients_of_each_trajectory(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters
) -> None:
    surrogate, gradients = sample_gradients(environment, hyperparameters)
    found = gradient_noise(surrogate.shares(4), num_samples=40)
    big = gradients.sum(0).square().sum().item()
    small = np.mean(
        [(4 * part.sum(0)).square().sum().item() for part in torch.split(gradients, 10)]
    )
    assert found is not None
    assert found.squared_norm == pytest.approx((40 * big - 10 * small) / (40 - 10))
    assert found.variance == pytest.approx((small - big) / (1 / 10 - 1 / 40))


def noise_of(gradients: Tensor, num_trajectories: int) -> GradientNoise | None:
    """Return the estimates of samples' contributions to a mean gradient # [N, P]."""
    shares = torch.stack([part.sum(0) for part in gradients.chunk(num_trajectories)])
    return gradient_noise(
        Shares(shares.square().sum(1), gradients.sum(0)), num_samples=len(gradients)
    )


def test_estimates_of_a_known_distribution_are_unbiased() -> None:
    # Per-sample gradients N(mean, diag(std^2)): |G|^2 = |mean|^2 and S = sum std^2.
    rng = np.random.default_rng(0)
    mean, std = np.array([1.0, -2.0, 0.5]), np.array([3.0, 1.0, 2.0])
    found = []
    for _ in range(2000):
        noise = noise_of(torch.from_numpy(rng.normal(mean, std, size=(64, 3)) / 64), 8)
        assert noise is not None
        found.append((noise.squared_norm, noise.variance))
    error = np.std(found, axis=0) / np.sqrt(len(found))
    distance = np.abs(np.mean(found, axis=0) - ((mean**2).sum(), (std**2).sum()))
    assert (distance < 4 * error).all()


def test_equal_gradients_have_no_noise() -> None:
    found = noise_of(torch.full((12, 1), 2.0 / 12), 4)
    assert found is not None
    assert found.squared_norm == pytest.approx(4.0, rel=1e-5)
    assert found.variance == pytest.approx(0.0, abs=1e-4)


def test_two_trajectories_say_as_much_as_they_can() -> None:
    # Gradients 1 and 3, one sample each: |G_B|^2 = 4, and |G_b|^2 is (1 + 9) / 2.
    found = noise_of(torch.tensor([[1.0], [3.0]]) / 2, 2)
    assert found is not None
    assert found.squared_norm == pytest.approx((2 * 4 - 1 * 5) / (2 - 1))
    assert found.variance == pytest.approx((5 - 4) / (1 / 1 - 1 / 2))


def test_one_trajectory_says_nothing_about_noise() -> None:
    assert noise_of(torch.ones(5, 1), 1) is None


def test_gradients_that_are_not_finite_have_no_estimate() -> None:
    gradients = torch.ones(4, 2)
    gradients[0, 1] = float("nan")
    assert noise_of(gradients, 2) is None


def test_a_layer_counts_its_weights_and_its_bias() -> None:
    h, delta = torch.tensor([[2.0], [3.0]]), torch.tensor([[5.0], [7.0]])
    # gradients (weight, bias): (10, 5) and (21, 7)
    assert squared_norms([h], [delta], num_trajectories=2).tolist() == [125.0, 490.0]
