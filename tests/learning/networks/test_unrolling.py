"""Derivatives through time against finite differences, in both libraries."""

from typing import Any

import pytest
import torch
from torch import Tensor

from learning.networks import unrolling
from learning.networks.unrolling import unrolled
from shared.policy.recurrent import Cell, Recurrent

SEQUENCES, LENGTH, UNITS = 3, 5, 2


def drawn(cell: Cell, *, fresh: bool) -> tuple[Recurrent, dict[str, Tensor]]:
    """A layer, and `unrolled`'s arguments in float64, where some episodes begin."""
    cells = Recurrent(cell=cell, inputs=3, units=UNITS)
    generator = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    begins = torch.zeros(SEQUENCES, LENGTH, 1)
    if fresh:
        begins[0, 2] = begins[1, 4] = begins[2, 4] = 1.0
    return cells, {
        "given": normal(SEQUENCES, LENGTH, cells.weight_shape[0]).requires_grad_(),
        "of_state": normal(cells.weight_shape[0], UNITS).requires_grad_(),
        "fresh": begins,
        "own": normal(SEQUENCES, LENGTH, cells.state_size),
    }


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_derivatives_are_those_of_finite_differences(
    cell: Cell, fresh: bool, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library == "torch":  # as on a GPU
        monkeypatch.setattr(unrolling, "_array", lambda tensor: tensor.detach().contiguous())
    cells, given = drawn(cell, fresh=fresh)

    def states(first: Tensor, weights: Tensor) -> Any:
        return unrolled(cells, first, weights, fresh=given["fresh"], own=given["own"])

    assert torch.autograd.gradcheck(states, (given["given"], given["of_state"]))
