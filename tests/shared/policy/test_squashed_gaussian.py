"""Squashed Gaussian policies in NumPy and in torch, against torch's own distributions."""

import numpy as np
import torch
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from learning.networks.squashed_gaussian import squashed_sample
from shared.policy.squashed_gaussian import SquashedGaussian

RNG = np.random.default_rng(4)
OUTPUTS = RNG.standard_normal((200, 6), np.float32)
NOISE = RNG.standard_normal((200, 3), np.float32)


def _oracle() -> TransformedDistribution:
    mean, raw = torch.from_numpy(OUTPUTS).double().chunk(2, dim=1)
    std = torch.exp(-5 + 7 * (torch.tanh(raw) + 1) / 2)  # from -5 to 2
    return TransformedDistribution(Independent(Normal(mean, std), 1), [TanhTransform()])


def test_samples_and_log_probabilities_are_those_of_torchs_distribution() -> None:
    policy = SquashedGaussian(3)
    action = policy.new_actions((200,))
    policy.sample(OUTPUTS, noise=NOISE, out=action)
    in_torch, log_prob = squashed_sample(torch.from_numpy(OUTPUTS), torch.from_numpy(NOISE))
    np.testing.assert_allclose(action, in_torch, atol=1e-5)
    inside = np.abs(action).max(axis=1) < 0.99  # beyond, float32 keeps too little of an action
    given = torch.from_numpy(action.astype(np.float64))
    expected = _oracle().log_prob(given).numpy()  # type: ignore[no-untyped-call]
    assert inside.sum() > 50
    np.testing.assert_allclose(
        policy.log_prob(OUTPUTS, action)[inside], expected[inside], rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(log_prob[inside], expected[inside], rtol=1e-3, atol=2e-3)
    mean = torch.from_numpy(OUTPUTS[:, :3]).double()
    np.testing.assert_allclose(policy.mode(OUTPUTS), torch.tanh(mean), atol=1e-6)


def test_log_probabilities_far_out_are_finite_and_so_are_their_gradients() -> None:
    outputs = torch.tensor([[40.0, -40.0, 9.0, 9.0]], requires_grad=True)
    action, log_prob = squashed_sample(outputs, torch.ones(1, 2))
    log_prob.sum().backward()  # type: ignore[no-untyped-call]
    assert outputs.grad is not None
    assert bool(outputs.grad.isfinite().all() and log_prob.isfinite().all())
    found = SquashedGaussian(2).log_prob(outputs.detach().numpy(), action.detach().numpy())
    assert np.isfinite(found).all()


def test_uniform_actions_fill_the_box_and_leave_the_mode_alone() -> None:
    policy = SquashedGaussian(3, uniform=True)
    noise = policy.noise(np.random.default_rng(0), (4000,))
    action = policy.new_actions((4000,))
    outputs = np.tile(OUTPUTS, (20, 1))
    policy.sample(outputs, noise=noise, out=action)
    assert np.abs(action).max() <= 1
    np.testing.assert_allclose(action.mean(axis=0), 0.0, atol=0.03)
    np.testing.assert_allclose(action.var(axis=0), 1 / 3, atol=0.02)
    np.testing.assert_allclose(policy.log_prob(outputs, action), -3 * np.log(2))
    np.testing.assert_array_equal(policy.mode(OUTPUTS), SquashedGaussian(3).mode(OUTPUTS))
