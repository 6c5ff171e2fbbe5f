"""The two estimates against a known distribution, and where they have no meaning."""

import numpy as np
import pytest
import torch
from torch import Tensor

from learning.detectors.gradient_noise import gradient_noise, noise_of_norms
from shared.contracts.rounds import GradientNoise


def noise_of(gradients: Tensor, num_trajectories: int) -> GradientNoise | None:
    """Return the estimates of samples' own gradients # [N, P]."""
    parts = gradients.chunk(num_trajectories)
    return gradient_noise((part.mean(0) for part in parts), batch_size=len(parts[0]))


def test_estimates_of_a_known_distribution_are_unbiased() -> None:
    # Per-sample gradients N(mean, diag(std^2)): |G|^2 = |mean|^2 and S = sum std^2.
    rng = np.random.default_rng(0)
    mean, std = np.array([1.0, -2.0, 0.5]), np.array([3.0, 1.0, 2.0])
    found = []
    for _ in range(2000):
        noise = noise_of(torch.from_numpy(rng.normal(mean, std, size=(64, 3))), 8)
        assert noise is not None
        found.append((noise.squared_norm, noise.variance))
    error = np.std(found, axis=0) / np.sqrt(len(found))
    distance = np.abs(np.mean(found, axis=0) - ((mean**2).sum(), (std**2).sum()))
    assert (distance < 4 * error).all()


def test_equal_gradients_have_no_noise() -> None:
    found = noise_of(torch.full((12, 1), 2.0), 4)
    assert found is not None
    assert found.squared_norm == pytest.approx(4.0, rel=1e-5)
    assert found.variance == pytest.approx(0.0, abs=1e-4)


def test_two_trajectories_say_as_much_as_they_can() -> None:
    # Gradients 1 and 3, one sample each: |G_B|^2 = 4, and |G_b|^2 is (1 + 9) / 2.
    found = noise_of(torch.tensor([[1.0], [3.0]]), 2)
    assert found is not None
    assert found.squared_norm == pytest.approx((2 * 4 - 1 * 5) / (2 - 1))
    assert found.variance == pytest.approx((5 - 4) / (1 / 1 - 1 / 2))


def test_one_trajectory_says_nothing_about_noise() -> None:
    assert noise_of(torch.ones(5, 1), 1) is None


def test_squared_norms_are_all_that_is_needed() -> None:
    samples = np.random.default_rng(1).normal(2.0, 3.0, size=(6, 4))
    variance = float(np.trace(np.cov(samples.T, ddof=1)))
    mean = samples.mean(axis=0)
    small = float((samples**2).sum(axis=1).mean())
    found = noise_of_norms(small, float(mean @ mean), count=6)
    assert found is not None
    assert found.variance == pytest.approx(variance)
    assert found.squared_norm == pytest.approx(float(mean @ mean) - variance / 6)
    assert noise_of_norms(1.0, 1.0, count=1) is None


def test_gradients_that_are_not_finite_have_no_estimate() -> None:
    gradients = torch.ones(4, 2)
    gradients[0, 1] = float("nan")
    assert noise_of(gradients, 2) is None
