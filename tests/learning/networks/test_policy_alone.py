"""A policy alone: the numbers that actors compute, and no value function."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from learning.networks.policy_alone import PolicyAlone
from shared.policy.blocks import dense_blocks, image_blocks
from shared.policy.head import Head
from shared.policy.numpy_network import NumpyNetwork
from shared.policy.spec import PolicySpec
from tests.shared.policy.torch_blocks import arrays_of, torch_network

FREE = Head(distribution="gaussian", log_std="free", size=3)
SPECS = [
    PolicySpec(network="mlp", blocks=dense_blocks((5, 7, 3), activation="tanh"), head=FREE),
    PolicySpec(
        network="mlp", blocks=dense_blocks((5, 7, 3), activation="elu", layer_norm=True), head=FREE
    ),
    PolicySpec(
        network="nature_cnn", blocks=image_blocks("nature_cnn", (1, 40, 44), outputs=3), head=FREE
    ),
]
LOG_STD = np.array([0.1, -0.2, 0.3], np.float32)


def alone(spec: PolicySpec) -> PolicyAlone:
    return PolicyAlone(spec, arrays_of(torch_network(spec.blocks)) | {"log_std": LOG_STD})


@pytest.mark.parametrize("spec", SPECS)
def test_outputs_are_those_of_actors(spec: PolicySpec) -> None:
    rng, shape = np.random.default_rng(1), (4, *spec.observation_shape)
    seen = rng.integers(256, size=shape).astype(np.float32) if len(shape) > 2 else None
    seen = rng.standard_normal(shape, np.float32) if seen is None else seen
    forward = NumpyNetwork(spec, arrays_of(torch_network(spec.blocks))).forward_pass(4)
    expected = forward(seen, np.empty((4, 3), np.float32))
    outputs = alone(spec).policy_outputs(torch.tensor(seen)).numpy()
    np.testing.assert_allclose(outputs[:, :3], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(outputs[:, 3:], np.tile(LOG_STD, (4, 1)))


def test_it_has_no_values_and_is_not_trained() -> None:
    policy = alone(SPECS[0])
    calls: list[Callable[[], object]] = [
        policy.new_gradient,
        lambda: policy.values(torch.zeros(1, 5)),
        lambda: policy.values_at({}, torch.zeros(1, 5)),
    ]
    for refused in calls:
        with pytest.raises(TypeError, match="no value function"):
            refused()
