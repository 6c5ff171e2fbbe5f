"""A policy alone: the numbers that actors compute, and derivatives by its parameters."""

from typing import Literal

import numpy as np
import pytest
import torch

from learning.networks.dense_policy import DensePolicy
from learning.networks.distributions import Gaussian
from shared.policy.mlp import Mlp


def layers(*sizes: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(0)
    weights = [
        rng.standard_normal((after, before)).astype(np.float32)
        for before, after in zip(sizes, sizes[1:], strict=False)
    ]
    return weights, [rng.standard_normal(size).astype(np.float32) for size in sizes[1:]]


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_outputs_are_those_of_actors(activation: Literal["tanh", "relu"]) -> None:
    weights, biases = layers(5, 7, 3)
    log_std = np.array([0.1, -0.2, 0.3], np.float32)
    policy = DensePolicy(
        weights, biases, log_std=log_std, activation=activation, distribution=Gaussian()
    )
    seen = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)
    forward = Mlp(weights, biases, activation=activation).forward_pass(4)
    expected = forward(seen, np.empty((4, 3), np.float32))
    outputs = policy.policy_outputs(torch.tensor(seen)).numpy()
    np.testing.assert_allclose(outputs[:, :3], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs[:, 3:], np.tile(log_std, (4, 1)))


def test_it_has_no_values_and_is_not_trained() -> None:
    weights, biases = layers(2, 2)
    policy = DensePolicy(weights, biases, log_std=None, activation="tanh", distribution=Gaussian())
    for refused in (
        policy.new_gradient,
        policy.payload_metadata,
        lambda: policy.values(torch.zeros(1, 2)),
        lambda: policy.values_at({}, torch.zeros(1, 2)),
    ):
        with pytest.raises(TypeError, match="no value function"):
            refused()
