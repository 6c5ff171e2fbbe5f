"""The NumPy network against torch's."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from shared.policy.mlp import Float32, Mlp


def _torch_network(*sizes: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for size, following in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(size, following), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def _arrays(network: nn.Sequential) -> tuple[list[Float32], list[Float32]]:
    linear = [layer for layer in network if isinstance(layer, nn.Linear)]
    weights: list[Float32] = [layer.weight.detach().numpy() for layer in linear]
    biases: list[Float32] = [layer.bias.detach().numpy() for layer in linear]
    return weights, biases


@pytest.mark.parametrize("sizes", [(3, 2), (11, 256, 256, 6), (1, 1, 1), (348, 64, 5, 34)])
@pytest.mark.parametrize("num_rows", [1, 4])
def test_it_computes_what_torch_does(sizes: tuple[int, ...], num_rows: int) -> None:
    reference = _torch_network(*sizes)
    network = Mlp(*_arrays(reference))
    assert (*network.input_shape, network.output_size) == (sizes[0], sizes[-1])
    inputs = np.random.default_rng(0).standard_normal((num_rows, sizes[0]), np.float32)
    out, forward = np.empty((num_rows, sizes[-1]), np.float32), network.forward_pass(num_rows)
    exact = reference.double()(torch.from_numpy(inputs).double()).detach().numpy()
    # Twice: what is left in the buffers must not matter.
    for _ in range(2):
        assert forward(inputs, out) is out
        np.testing.assert_allclose(out, exact, rtol=0, atol=2e-6)


def _zeros(*shape: int) -> NDArray[np.float32]:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("weights", "biases", "says"),
    [
        ([], [], "make no network"),
        ([_zeros(2, 3)], [], "make no network"),
        ([_zeros(2, 3)], [_zeros(3)], "layer 0"),
        ([_zeros(2, 3), _zeros(4, 3)], [_zeros(2), _zeros(4)], "layer 1"),
        ([_zeros(0, 3)], [_zeros(0)], "layer 0"),
        ([_zeros(2, 3, 1)], [_zeros(2)], "layer 0"),
    ],
)
def test_layers_that_do_not_fit_are_named(
    weights: list[Float32], biases: list[Float32], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        Mlp(weights, biases)
