"""Flat Adam against torch's own Adam and gradient clipping, layer by layer."""

import math
from collections.abc import Callable

import pytest
import torch

from services.learner.algorithms.optimiser import FlatAdam
from services.learner.networks import ActorCritic, build_network
from shared.ppo_hyperparameters import PpoHyperparameters
from tests.services.learner.trajectories import CONTINUOUS


def new_network() -> ActorCritic:
    return build_network(CONTINUOUS, PpoHyperparameters(hidden_sizes=(6,)), seed=3)


def fill(adam: FlatAdam, network: ActorCritic, generator: torch.Generator) -> torch.Tensor:
    """Write a gradient; the gaps between parameters stay 0."""
    for view in network.views_of(adam.gradient.flat).values():
        view.copy_(torch.randn(view.shape, generator=generator))
    return adam.gradient.flat.clone()


def watched(adam: FlatAdam, stats: torch.Tensor) -> list[float] | None:
    return adam.step(stats)


def unwatched(adam: FlatAdam, stats: torch.Tensor) -> list[float] | None:
    *row, taken = adam.step_unwatched(stats).tolist()
    if not taken:
        assert row == [0.0] * (len(stats) + 1)
    return row if taken else None


Take = Callable[[FlatAdam, torch.Tensor], list[float] | None]
both_ways = pytest.mark.parametrize("take", [watched, unwatched])


@both_ways
@pytest.mark.parametrize("norm_max", [0.0, 0.5, 1e9])
def test_steps_are_torchs(norm_max: float, take: Take) -> None:
    network, generator = new_network(), torch.Generator().manual_seed(1)
    adam = FlatAdam(network, learning_rate=0.01, epsilon=1e-5, gradient_norm_max=norm_max)
    parameter = torch.nn.Parameter(network.flat.clone())
    reference = torch.optim.Adam([parameter], lr=0.01, eps=1e-5)
    for step in range(4):
        parameter.grad = fill(adam, network, generator)
        norm = parameter.grad.norm().item()
        if norm_max:
            torch.nn.utils.clip_grad_norm_([parameter], norm_max)
        if step == 2:
            adam.set_learning_rate(0.003)
            reference.param_groups[0]["lr"] = 0.003
        reference.step()
        stats = take(adam, torch.tensor([7.0]))
        assert stats is not None
        assert stats == pytest.approx([7.0, norm])
    torch.testing.assert_close(network.flat, parameter.data, rtol=1e-5, atol=1e-6)
    assert adam.steps == 4


@both_ways
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_step_that_is_not_finite_changes_nothing(bad: float, where: str, take: Take) -> None:
    network, generator = new_network(), torch.Generator().manual_seed(1)
    adam = FlatAdam(network, learning_rate=0.01, epsilon=1e-8, gradient_norm_max=1.0)
    fill(adam, network, generator)
    take(adam, torch.ones(1))
    before = [network.flat.clone(), *(moment.clone() for moment in adam.flats.values())]
    fill(adam, network, generator)
    if where == "gradient":
        network.views_of(adam.gradient.flat)["policy.0.bias"][0] = bad
    assert take(adam, torch.tensor([bad if where == "loss" else 1.0])) is None
    after = [network.flat, *adam.flats.values()]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert adam.steps == 1
    fill(adam, network, generator)
    assert take(adam, torch.ones(1)) is not None
    assert adam.steps == 2
