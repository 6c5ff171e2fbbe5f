"""Modules that somebody else wrote, as graphs: they act alike, and nothing happens to them."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from learning.networks.onnx_export import onnx_graph
from shared.policy.head import PolicyError
from shared.policy.onnx_network import OnnxNetwork


class Residual(nn.Module):
    """Layers that NumPy does not have, around which observations pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.5))
        self.last = nn.Linear(13, 4)

    def forward(self, observation: Tensor) -> Tensor:
        found: Tensor = self.last(torch.cat([observation, self.layer(observation)], 1))
        return found


class Pixels(nn.Module):
    """A network of images from 0 to 255."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 4, 3, stride=2),
            nn.BatchNorm2d(4),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(64, 2),
        )

    def forward(self, observation: Tensor) -> Tensor:
        found: Tensor = self.layers(observation.float() / 255)
        return found


@pytest.mark.parametrize(("made", "shape"), [(Residual, (5,)), (Pixels, (3, 9, 9))])
def test_a_graph_acts_as_its_module(made: type[nn.Module], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    module = made()
    block, graph = onnx_graph(module, shape, is_image=len(shape) == 3)
    seen = np.random.default_rng(1).uniform(0, 255, (7, *shape)).astype(np.float32)
    out = np.empty((7, block.outputs), np.float32)
    OnnxNetwork(block, graph).forward_pass(7)(seen, out)
    with torch.no_grad():
        expected = module.eval()(torch.from_numpy(seen)).numpy()
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


def test_nothing_of_the_caller_changes() -> None:
    module = Residual()
    state = torch.random.get_rng_state()
    onnx_graph(module, (5,), is_image=False)
    assert all(part.training for part in module.modules())
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert torch.equal(torch.random.get_rng_state(), state)


def test_equal_weights_are_equal_bytes() -> None:
    module = Residual()
    first, second = (onnx_graph(module, (5,), is_image=False)[1] for _ in range(2))
    assert first == second


class Branching(nn.Module):
    def forward(self, observation: Tensor) -> Tensor:
        return observation * (2 if observation.sum() > 0 else 3)


class Noisy(nn.Module):
    def forward(self, observation: Tensor) -> Tensor:
        return observation + torch.randn_like(observation)


class Both(nn.Module):
    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        return observation, observation


class Lost(nn.Module):
    def forward(self, observation: Tensor) -> Tensor:
        return observation / 0


@pytest.mark.parametrize(
    ("module", "told"),
    [
        (Noisy(), "Noisy and its ONNX graph differ by up to"),
        (Both(), "Both returns tuple for observations"),
        (nn.Linear(9, 2), "Linear failed on observations"),
        (Lost(), "outputs that are not finite"),
        (nn.Flatten(0), r"Flatten returns \(5,\)"),
    ],
)
def test_what_is_no_network_is_refused(module: nn.Module, told: str) -> None:
    with pytest.raises(PolicyError, match=told):
        onnx_graph(module, (5,), is_image=False)


def test_a_branch_that_was_not_traced_is_found_out() -> None:
    torch.manual_seed(0)
    with pytest.raises(PolicyError, match="may not branch by what it observes"):
        onnx_graph(Branching(), (5,), is_image=False)
