"""Flat Adam against torch's own Adam and gradient clipping, layer by layer."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from learning.networks.actor_critic import ActorCritic
from learning.networks.building import build_network
from learning.updates import optimiser
from learning.updates.gradient import Gradient
from learning.updates.optimiser import AdamRule, FlatAdam
from shared.hyperparameters.ppo import PpoHyperparameters
from tests.learning.trajectories import CONTINUOUS


def new_network() -> ActorCritic:
    return build_network(CONTINUOUS, PpoHyperparameters(hidden_sizes=(6,)), seed=3)


def new_adam(network: ActorCritic, *, epsilon: float, norm_max: float) -> FlatAdam:
    rule = AdamRule(learning_rate=0.01, epsilon=epsilon, gradient_norm_max=norm_max)
    return FlatAdam(network.flat, rule=rule)


def drawn(network: ActorCritic, generator: torch.Generator) -> torch.Tensor:
    """Draw a gradient; the gaps between parameters are 0."""
    flat = torch.zeros_like(network.flat)
    for view in network.views_of(flat).values():
        view.copy_(torch.randn(view.shape, generator=generator))
    return flat


def of(flat: torch.Tensor, *, stat: float = 1.0) -> Gradient:
    return Gradient(flat=flat, stats=torch.tensor([stat]))


def watched(adam: FlatAdam, gradient: Gradient) -> list[float] | None:
    return adam.apply(gradient)


def unwatched(adam: FlatAdam, gradient: Gradient) -> list[float] | None:
    *row, taken = adam.apply_unwatched(gradient).tolist()
    if not taken:
        assert row == [0.0] * 2
    return row if taken else None


Take = Callable[[FlatAdam, Gradient], list[float] | None]
both_ways = pytest.mark.parametrize("take", [watched, unwatched])


@both_ways
@pytest.mark.parametrize("norm_max", [0.0, 0.5, 1e9])
def test_steps_are_torchs(norm_max: float, take: Take) -> None:
    network, generator = new_network(), torch.Generator().manual_seed(1)
    adam = new_adam(network, epsilon=1e-5, norm_max=norm_max)
    parameter = torch.nn.Parameter(network.flat.clone())
    reference = torch.optim.Adam([parameter], lr=0.01, eps=1e-5)
    for step in range(4):
        flat = drawn(network, generator)
        parameter.grad = flat.clone()
        norm = parameter.grad.norm().item()
        if norm_max:
            torch.nn.utils.clip_grad_norm_([parameter], norm_max)
        if step == 2:
            adam.set_learning_rate(0.003)
            reference.param_groups[0]["lr"] = 0.003
        reference.step()
        gradient = of(flat.clone(), stat=7.0)
        stats = take(adam, gradient)
        assert torch.equal(gradient.flat, flat)
        assert stats is not None
        assert stats == pytest.approx([7.0, norm])
    torch.testing.assert_close(network.flat, parameter.data, rtol=1e-5, atol=1e-6)
    assert adam.steps == 4


@both_ways
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e200])
@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_step_that_is_not_finite_changes_nothing(bad: float, where: str, take: Take) -> None:
    network, generator = new_network(), torch.Generator().manual_seed(1)
    adam = new_adam(network, epsilon=1e-8, norm_max=1.0)
    take(adam, of(drawn(network, generator)))
    before = [network.flat.clone(), *(moment.clone() for moment in adam.flats.values())]
    flat = drawn(network, generator)
    if where == "gradient":
        # Finite by itself, its square is not.
        network.views_of(flat)["policy.0.bias"][0] = 1e20 if bad == 1e200 else bad
    stats = torch.tensor([bad if where == "loss" else 1.0])
    assert take(adam, Gradient(flat=flat, stats=stats)) is None
    after = [network.flat, *adam.flats.values()]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert adam.steps == 1
    assert take(adam, of(drawn(network, generator))) is not None
    assert adam.steps == 2


@pytest.mark.parametrize("norm_max", [0.0, 0.5])
@pytest.mark.parametrize("spoilt", [None, "first", "second"])
def test_two_halves_step_to_the_bits_of_the_whole(norm_max: float, spoilt: str | None) -> None:
    network, generator = new_network(), torch.Generator().manual_seed(1)
    halves = network.halves()
    assert halves is not None
    meet = halves[1].start
    rule = AdamRule(learning_rate=0.01, epsilon=1e-5, gradient_norm_max=norm_max)
    pieces = (slice(0, meet), slice(meet, None))
    whole = FlatAdam(network.flat, rule=rule, pieces=pieces)
    assert whole.apply(of(drawn(network, generator))) is not None

    first, second = FlatAdam.of(whole.part(0, meet)), FlatAdam.of(whole.part(meet))
    gradient = drawn(network, generator)
    if spoilt is not None:
        gradient[0 if spoilt == "first" else meet] = math.nan
    parts = gradient[:meet], gradient[meet:]
    squares = [float(part.double().square().sum()) for part in parts]
    sent = []

    def swap(own: float) -> float:
        sent.append(own)
        return own + float(np.dot(theirs, theirs))

    rows = []
    for half, own, other in ((first, *parts), (second, *parts[::-1])):
        theirs = other.numpy()
        rows.append(half.apply(of(own), swap))
    expected = whole.apply(of(gradient))
    assert rows == [expected, expected]
    assert (expected is None) is (spoilt is not None)
    assert sent == pytest.approx(squares, rel=1e-5, nan_ok=True)

    taken_over = FlatAdam(network.flat.clone(), rule=rule)
    taken_over.take_over(first.part(), second.part())
    assert taken_over.steps == whole.steps == (1 if spoilt else 2)
    for name, flat in whole.flats.items():
        assert torch.equal(taken_over.flats[name], flat), name
    assert torch.equal(taken_over.parameters, network.flat)


def test_squares_are_summed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimiser, "sum", math.fsum, raising=False)  # much as since Python 3.12
    rule = AdamRule(learning_rate=0.01, epsilon=1e-5, gradient_norm_max=0.0)
    pieces = [slice(i, i + 1) for i in range(4)]
    gradient = torch.tensor([2.0**27, 1.0, 1.0, 1.0])
    adam = FlatAdam(torch.zeros(4), rule=rule, pieces=pieces)
    sent: list[float] = []

    def whole(square: float) -> float:
        sent.append(square)
        return square

    assert adam.apply(of(gradient), whole) is not None
    assert sent == [2.0**54] != [math.fsum((2.0**54, 1.0, 1.0, 1.0))]


def test_a_part_is_a_copy() -> None:
    network, generator = new_network(), torch.Generator().manual_seed(1)
    adam = new_adam(network, epsilon=1e-5, norm_max=0.0)
    part = adam.part()
    before = part.flats[0].copy()
    again = FlatAdam.of(part)
    for each in (adam, again):
        assert each.apply(of(drawn(network, generator))) is not None
    assert part.steps == 0
    np.testing.assert_array_equal(part.flats[0], before)
    assert not part.flats[1].any()
