"""The NumPy network gives torch's numbers, and the layers are the published ones."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from shared.policy.conv import ConvNetwork
from shared.policy.conv_layers import CONV_NETWORKS, ConvLayers, ConvNetworkName, conv_layers

SHAPES = [(4, 84, 84), (3, 84, 84), (1, 50, 41), (3, 96, 80)]


def torch_network(layers: ConvLayers, num_outputs: int, seed: int = 0) -> nn.Sequential:
    """The same network out of torch's own modules, with random parameters."""
    torch.manual_seed(seed)
    modules: list[nn.Module] = []
    for layer in layers.convolutions:
        (top, bottom), (left, right) = layer.padding
        modules.append(nn.ZeroPad2d((left, right, top, bottom)))
        modules.append(nn.Conv2d(layer.channels, layer.filters, layer.kernel, layer.stride))
        modules.append(nn.ReLU())
    modules.append(nn.Flatten())
    widths = [layers.num_flat, *layers.dense]
    for inputs, outputs in zip(widths[:-1], widths[1:], strict=True):
        modules += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*modules, nn.Linear(widths[-1], num_outputs))


def parameters(network: nn.Module) -> tuple[list[NDArray[np.float32]], list[NDArray[np.float32]]]:
    arrays = [parameter.detach().numpy() for parameter in network.parameters()]
    return arrays[0::2], arrays[1::2]


@pytest.mark.parametrize("name", CONV_NETWORKS)
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_torch(name: ConvNetworkName, shape: tuple[int, ...]) -> None:
    layers = conv_layers(name, shape)
    oracle = torch_network(layers, num_outputs=6)
    network = ConvNetwork(layers, *parameters(oracle))
    images = np.random.default_rng(0).integers(256, size=(3, *shape), dtype=np.uint8)
    forward, out = network.forward_pass(3), np.empty((3, 6), np.float32)
    with torch.inference_mode():
        for batch in (images, images[::-1]):  # twice: nothing of a call is left for the next
            expected = oracle(torch.from_numpy(batch.copy()).float() / 255).numpy()
            found = forward(batch, out)
            assert found is out
            np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


def test_the_papers_network_is_rllibs() -> None:
    """8x8, 4x4 and 11x11 filters; 42 x 42 and 21 x 21 would need others."""
    layers = conv_layers("paper_cnn", (4, 84, 84)).convolutions
    assert [layer.filters for layer in layers] == [16, 32, 256]
    assert [layer.kernel for layer in layers] == [(8, 8), (4, 4), (11, 11)]
    assert [layer.stride for layer in layers] == [4, 2, 1]
    assert [layer.output_size for layer in layers] == [(21, 21), (11, 11), (1, 1)]
    assert [layer.padding[0] for layer in layers] == [(2, 2), (1, 2), (0, 0)]


def test_natures_network_has_1_7_million_parameters() -> None:
    layers = conv_layers("nature_cnn", (4, 84, 84))
    assert [layer.output_size for layer in layers.convolutions] == [(20, 20), (9, 9), (7, 7)]
    assert layers.num_flat == 3136
    # CleanRL's Atari agent with six actions, counted by torch.
    network = torch_network(layers, num_outputs=6)
    assert sum(p.numel() for p in network.parameters()) + 513 == 1_687_719
    assert layers.num_filter_weights + 3137 * 512 + 513 * 7 == 1_687_719


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("nature_cnn", (4, 35, 84), "too small"),
        ("nature_cnn", (84, 84), "takes images"),
        ("paper_cnn", (28224,), "takes images"),
    ],
)
def test_unsuitable_images_are_refused(
    name: ConvNetworkName, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        conv_layers(name, shape)


def test_parameters_of_another_shape_are_refused() -> None:
    layers = conv_layers("nature_cnn", (4, 84, 84))
    weights, biases = parameters(torch_network(layers, num_outputs=2))
    with pytest.raises(ValueError, match="4 weights and 5 biases, expected 5 of each"):
        ConvNetwork(layers, weights[1:], biases)
    with pytest.raises(ValueError, match=r"layer 1 has weight \(64, 32, 3, 4\)"):
        ConvNetwork(layers, [weights[0], weights[1][:, :, 1:], *weights[2:]], biases)
    with pytest.raises(ValueError, match=r"layer 4 has .* bias \(3,\)"):
        ConvNetwork(layers, weights, [*biases[:-1], np.zeros(3, np.float32)])
    with pytest.raises(ValueError, match="0 weights and 0 biases"):
        ConvNetwork(layers, [], [])
