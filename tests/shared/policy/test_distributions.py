"""Sampling and densities in NumPy against torch's distributions."""

import numpy as np
import pytest
import torch

from shared.policy.distributions import Categorical, Gaussian, MultiCategorical

_RNG_SEED = 7


@pytest.mark.parametrize("free", [False, True])
def test_a_gaussian_action_is_mean_plus_deviation_times_noise(free: bool) -> None:
    rng = np.random.default_rng(_RNG_SEED)
    mean = rng.standard_normal((50, 3), np.float32)
    log_std = rng.standard_normal(3 if free else (50, 3), np.float32) * 2
    distribution = Gaussian(3, log_std=log_std if free else None)
    outputs = mean if free else np.concatenate((mean, log_std), axis=1)
    noise = distribution.noise(np.random.default_rng(1), (50,))
    action = distribution.new_actions((50,))
    distribution.sample(outputs, noise=noise, out=action)
    standard = np.random.default_rng(1).standard_normal((50, 3), np.float32)
    exact = mean + np.exp(log_std.astype(np.float64)) * standard
    np.testing.assert_allclose(action, exact, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(distribution.mode(outputs), mean)
    reference = torch.distributions.Normal(
        torch.from_numpy(mean).double(), torch.from_numpy(log_std).double().exp()
    )
    taken = torch.from_numpy(action).double()
    expected = reference.log_prob(taken).sum(-1).numpy()  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(distribution.log_prob(outputs, action), expected, rtol=1e-5)


def test_a_density_is_of_the_action_before_it_is_clipped() -> None:
    outputs = np.zeros((1, 2), np.float32)
    far, bound = np.full((1, 1), 5.0, np.float32), np.ones((1, 1), np.float32)
    distribution = Gaussian(1, log_std=None)
    difference = distribution.log_prob(outputs, far) - distribution.log_prob(outputs, bound)
    np.testing.assert_allclose(difference, -(25 - 1) / 2, rtol=1e-6)


def test_categorical_actions_come_as_often_as_their_softmax_says() -> None:
    logits = np.array([2.0, 0.0, -1.0, 1.0, -30.0], np.float32)
    num_draws = 40_000
    distribution = Categorical(5)
    noise = distribution.noise(np.random.default_rng(_RNG_SEED), (num_draws,))
    action = distribution.new_actions((num_draws,))
    distribution.sample(np.tile(logits, (num_draws, 1)), noise=noise, out=action)
    p = torch.softmax(torch.from_numpy(logits).double(), 0).numpy()
    deviation = np.sqrt(num_draws * p * (1 - p))
    counts = np.bincount(np.asarray(action, np.int64), minlength=5)
    assert (np.abs(counts - num_draws * p) <= 4 * deviation + 1).all()


def test_categorical_densities_equal_torchs_for_any_shift_of_the_logits() -> None:
    rng = np.random.default_rng(_RNG_SEED)
    logits = rng.standard_normal((6, 4, 3), np.float32) * 5
    action = rng.integers(0, 3, (6, 4))
    reference = torch.distributions.Categorical(logits=torch.from_numpy(logits).double())
    taken = torch.from_numpy(action)
    expected = reference.log_prob(taken).numpy()  # type: ignore[no-untyped-call]
    distribution = Categorical(3)
    for shift in (0.0, 1000.0, -1000.0):
        shifted = (logits + np.float32(shift)).astype(np.float32)
        tolerance = 1e-5 if not shift else 1e-3
        found = distribution.log_prob(shifted, action)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(distribution.mode(logits), logits.argmax(-1))
    extreme = np.array([[1e30, -1e30, -1e30]], np.float32)
    np.testing.assert_array_equal(distribution.log_prob(extreme, np.zeros(1, np.int64)), [0.0])


def test_several_choices_are_so_many_categoricals() -> None:
    rng = np.random.default_rng(_RNG_SEED)
    choices = (3, 1, 4)
    outputs = rng.standard_normal((50, 2, 8), np.float32) * 3
    distribution = MultiCategorical(choices)
    noise = distribution.noise(np.random.default_rng(1), (50, 2))
    action = distribution.new_actions((50, 2))
    distribution.sample(outputs, noise=noise, out=action)
    parts = zip(
        np.split(outputs, [3, 4], axis=-1), np.split(noise, [3, 4], axis=-1), choices, strict=True
    )
    log_prob = np.zeros((50, 2))
    for i, (logits, drawn, n) in enumerate(parts):
        one = Categorical(n)
        alone = one.new_actions((50, 2))
        one.sample(logits, noise=drawn, out=alone)
        np.testing.assert_array_equal(action[..., i], alone)
        np.testing.assert_array_equal(distribution.mode(outputs)[..., i], one.mode(logits))
        log_prob += one.log_prob(logits, alone)
    np.testing.assert_allclose(distribution.log_prob(outputs, action), log_prob, rtol=1e-5)
    assert (distribution.num_outputs, distribution.action_shape) == (8, (3,))
    assert distribution.num_choices == choices
