"""The NumPy network gives torch's numbers, whatever its blocks."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from shared.policy.blocks import CONV_NETWORKS, ConvNetworkName, dense_blocks, image_blocks
from shared.policy.head import Head
from shared.policy.network_metadata import LayersName
from shared.policy.numpy_network import NumpyNetwork
from shared.policy.spec import PolicySpec
from tests.shared.policy.torch_blocks import arrays_of, torch_network

IMAGES = [(4, 84, 84), (3, 84, 84), (1, 50, 41), (3, 96, 80)]
SIZES = [(3, 2), (11, 256, 256, 6), (1, 1, 1), (348, 64, 5, 34)]


def assert_equal_to_torch(spec: PolicySpec, inputs: NDArray[Any], tolerance: float) -> None:
    oracle = torch_network(spec.blocks)
    network = NumpyNetwork(spec, arrays_of(oracle))
    outputs = spec.head.num_outputs
    assert (network.input_shape, network.output_size) == (inputs.shape[1:], outputs)
    forward, out = (
        network.forward_pass(len(inputs)),
        np.empty((len(inputs), outputs), np.float32),
    )
    oracle = oracle.double()
    with torch.inference_mode():
        for batch in (inputs, inputs[::-1].copy()):  # twice: nothing is left for the next call
            exact = oracle(torch.from_numpy(batch).double()).numpy()
            assert forward(batch, out) is out
            np.testing.assert_allclose(out, exact, rtol=0, atol=tolerance)


def spec_of(name: LayersName, blocks: Any, outputs: int) -> PolicySpec:
    head = Head(distribution="categorical", num_choices=(outputs,))
    return PolicySpec(network=name, blocks=blocks, head=head)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("activation", ["tanh", "relu", "elu"])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("num_rows", [1, 4])
def test_dense_layers(
    sizes: tuple[int, ...], num_rows: int, activation: Any, *, layer_norm: bool
) -> None:
    # The norm of one number is 0, and what is left of it is rounding.
    norm = layer_norm and 1 not in sizes
    blocks = dense_blocks(sizes, activation=activation, layer_norm=norm)
    inputs = np.random.default_rng(0).standard_normal((num_rows, sizes[0]), np.float32)
    assert_equal_to_torch(spec_of("mlp", blocks, sizes[-1]), inputs, 5e-6)


@pytest.mark.parametrize("name", CONV_NETWORKS)
@pytest.mark.parametrize("shape", IMAGES)
def test_images(name: ConvNetworkName, shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).integers(256, size=(3, *shape), dtype=np.uint8)
    assert_equal_to_torch(spec_of(name, image_blocks(name, shape, outputs=6), 6), images, 1e-5)


def test_parameters_are_copied() -> None:
    spec = spec_of("mlp", dense_blocks((2, 1), activation="tanh"), 1)
    arrays = arrays_of(torch_network(spec.blocks))
    network = NumpyNetwork(spec, arrays)
    before = network.forward_pass(1)(np.ones((1, 2), np.float32), np.empty((1, 1), np.float32))
    arrays["policy.0.bias"] += 1.0
    after = network.forward_pass(1)(np.ones((1, 2), np.float32), np.empty((1, 1), np.float32))
    assert before == after


def test_oracle_is_made_of_torchs_own_modules() -> None:
    kinds = {
        type(module) for module in torch_network(image_blocks("nature_cnn", (4, 84, 84), outputs=2))
    }
    assert {nn.Conv2d, nn.Linear, nn.ReLU, nn.Flatten} <= kinds
