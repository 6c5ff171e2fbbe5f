"""The networks for images are the published ones."""

import pytest

from shared.policy.blocks import Conv, ConvNetworkName, Dense, image_blocks
from tests.shared.policy.torch_blocks import torch_network


def convolutions(name: ConvNetworkName, shape: tuple[int, ...] = (4, 84, 84)) -> list[Conv]:
    return [block for block in image_blocks(name, shape, outputs=6) if isinstance(block, Conv)]


def test_the_papers_network_is_rllibs() -> None:
    """8x8, 4x4 and 11x11 filters; 42 x 42 and 21 x 21 would need others."""
    layers = convolutions("paper_cnn")
    assert [layer.filters for layer in layers] == [16, 32, 256]
    assert [layer.kernel for layer in layers] == [(8, 8), (4, 4), (11, 11)]
    assert [layer.stride for layer in layers] == [4, 2, 1]
    assert [layer.output_size for layer in layers] == [(21, 21), (11, 11), (1, 1)]
    assert [layer.padding[0] for layer in layers] == [(2, 2), (1, 2), (0, 0)]


def test_natures_network_has_1_7_million_parameters() -> None:
    layers = convolutions("nature_cnn")
    assert [layer.output_size for layer in layers] == [(20, 20), (9, 9), (7, 7)]
    blocks = image_blocks("nature_cnn", (4, 84, 84), outputs=6)
    assert [block.inputs for block in blocks if isinstance(block, Dense)] == [3136, 512]
    # CleanRL's Atari agent with six actions, counted by torch; its value is one layer more.
    assert sum(p.numel() for p in torch_network(blocks).parameters()) + 513 == 1_687_719


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
        image_blocks(name, shape, outputs=2)
