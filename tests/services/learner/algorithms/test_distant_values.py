"""Values left out of a step: which may be, and that nothing comes of it."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from services.learner.actor_critic import NetworkHalf
from services.learner.algorithms import distant_values, ppo
from services.learner.algorithms.distant_values import DistantValues, Drift, leaves_out
from services.learner.algorithms.halved_steps import ValueHalf
from services.learner.algorithms.impact_loss import ImpactRule
from services.learner.algorithms.impala_loss import ImpalaRule
from services.learner.algorithms.loss_terms import LossRule
from services.learner.algorithms.optimiser import AdamRule, FlatAdam
from services.learner.algorithms.ppo import Ppo
from services.learner.algorithms.ppo_loss import PpoRule
from services.learner.arrays import Floats
from services.learner.batch import TrainingBatch, build_batch
from services.learner.networks import build_network
from services.learner.numpy_mlp import MlpPlaces, OneMlp
from shared.impact_hyperparameters import ImpactHyperparameters
from shared.impala_hyperparameters import ImpalaHyperparameters
from shared.ppo_hyperparameters import PAPER, STANDARD, PpoHyperparameters
from tests.services.learner.algorithms.test_ppo import SMALL, round_of
from tests.services.learner.trajectories import CONTINUOUS

RULE = PpoRule(hyperparameters=PAPER, kl_coefficient=0.2)
BOUND = math.sqrt(PAPER.value_clip)
WIDTH = 5
"""Numbers of an observation."""
LARGE = distant_values.MIN_MULTIPLICATIONS


def value_function(*hidden_sizes: int, seed: int = 0) -> tuple[NetworkHalf, Floats]:
    """Return where a value function lies, and its parameters with a last layer that matters."""
    network = build_network(CONTINUOUS, PpoHyperparameters(hidden_sizes=hidden_sizes), seed=seed)
    halves = network.halves()
    assert halves is not None
    half = halves[1]
    parameters = network.flat[half.start : half.end].numpy().copy()
    head = OneMlp.within(parameters, half.mlp).head.weight
    head[...] = np.random.default_rng(seed).normal(0.0, 0.3, head.shape)
    return half, parameters


def values_at(parameters: Floats, half: NetworkHalf, observation: Floats) -> NDArray[np.float64]:
    """Return a value function's answers in double precision, layer by layer."""
    mlp = OneMlp.within(parameters.astype(np.float64), half.mlp)
    h = observation.astype(np.float64)
    for layer in mlp.hidden:
        h = np.tanh(h @ layer.weight.T + layer.bias)
    value: NDArray[np.float64] = (h @ mlp.head.weight.T + mlp.head.bias)[:, 0]
    return value


@pytest.mark.parametrize("hidden_sizes", [(7,), (16, 16), (24, 8, 16)])
@pytest.mark.parametrize("step", [1e-4, 1e-2, 1.0])
def test_no_value_moves_further_than_the_bound(hidden_sizes: tuple[int, ...], step: float) -> None:
    half, parameters = value_function(*hidden_sizes)
    drift = Drift(parameters, half.mlp)
    rng = np.random.default_rng(1)
    length = rng.uniform(0.0, 30.0, 200)
    observation = rng.normal(size=(200, WIDTH))
    observation *= (length / np.linalg.norm(observation, axis=1))[:, np.newaxis]
    before = values_at(parameters, half, observation)
    for _ in range(20):
        parameters += rng.normal(0.0, step, len(parameters)).astype(np.float32)
        moved = np.abs(values_at(parameters, half, observation) - before)
        per_length, at_least = drift.bound()
        assert (moved <= per_length * length + at_least + 1e-6).all()


def test_a_value_can_move_nearly_as_far_as_the_bound() -> None:
    half, parameters = value_function(16)
    drift = Drift(parameters, half.mlp)
    mlp = OneMlp.within(parameters, half.mlp)
    assert drift.bound() == (0.0, 0.0)
    mlp.head.bias[...] += 2.0
    np.testing.assert_allclose(drift.bound(), (0.0, 2.0), rtol=2e-3)
    mlp.hidden[0].bias[...] = 20.0  # every tanh is 1
    drift.mark()
    mlp.head.weight[...] += 0.25
    np.testing.assert_allclose(drift.bound(), (0.0, 0.25 * 16), rtol=2e-3)


def test_the_bound_grows_with_the_observation_by_the_first_weight_alone() -> None:
    half, parameters = value_function(16)
    drift = Drift(parameters, half.mlp)
    mlp = OneMlp.within(parameters, half.mlp)
    mlp.hidden[0].weight[3, 1] += 0.5
    per_length, at_least = drift.bound()
    assert at_least == 0.0
    assert per_length == pytest.approx(0.5 * np.linalg.norm(mlp.head.weight), rel=5e-3)


@pytest.mark.parametrize("large", [0.1, 10.0])
def test_what_moves_a_layer_moves_the_value_by_as_much_as_the_next_stretches_it(
    large: float,
) -> None:
    half, parameters = value_function(16)
    mlp = OneMlp.within(parameters, half.mlp)
    mlp.head.weight[...] *= large
    drift = Drift(parameters, half.mlp)
    mlp.hidden[0].bias[0, 3] += 0.5
    per_length, at_least = drift.bound()
    assert per_length == 0.0
    assert at_least == pytest.approx(0.5 * np.linalg.norm(mlp.head.weight), rel=5e-3)


def test_the_bound_of_millions_of_weights_is_one() -> None:
    width = 4096
    size = width * width
    places = MlpPlaces(
        weights=((0, (width, width)), (size + width, (1, width))),
        biases=((size, (width,)), (size + 2 * width, (1,))),
    )
    parameters = np.zeros(size + 2 * width + 1, np.float32)
    parameters[size + width] = 1.0  # of one unit the value is made
    drift = Drift(parameters, places)
    # Its square is rounded down wherever a float32 sum of such squares is large.
    moved = np.float32(1.0038)
    parameters[:size] += moved
    per_length, at_least = drift.bound()
    exactly = math.sqrt(size) * float(moved)
    # Twice a thousandth is allowed for rounding, of which the sum takes next to nothing.
    assert per_length == pytest.approx(1.002 * exactly, rel=1e-4)
    assert at_least == 0.0


@given(
    target=st.floats(-1e6, 1e6, width=32),
    value=st.floats(-1e6, 1e6, width=32),
    move=st.floats(-1.0, 1.0),
)
def test_within_its_room_a_value_has_no_slope_and_the_same_stats(
    target: float, value: float, move: float
) -> None:
    targets, before = (np.array([x], np.float32) for x in (target, value))
    room = RULE.value_room(targets, before)
    assert room is not None
    rounding = 1e-6 * (1.0 + abs(target) + abs(value))
    term = RULE.value_term(targets, before)
    if room[0] <= rounding:
        return
    after = before + np.float32(move * (room[0] - rounding))
    assert term.slope(before) == term.slope(after) == 0.0
    assert term.stats().tolist() == [pytest.approx(PAPER.value_clip), 1.0]
    # Just beyond its room it has one.
    inside = targets + np.float32(0.99 * BOUND) * np.sign(before - targets)
    if abs(target) < 1e3:
        assert RULE.value_term(targets, before).slope(inside) != 0.0
        assert (RULE.value_room(targets, inside) or np.zeros(1))[0] < 0.0


@pytest.mark.parametrize(
    "rule",
    [
        PpoRule(hyperparameters=STANDARD, kl_coefficient=0.0),
        ImpactRule(hyperparameters=ImpactHyperparameters(), kl_coefficient=0.0),
        ImpalaRule(hyperparameters=ImpalaHyperparameters()),
    ],
)
def test_other_losses_leave_no_room(rule: LossRule) -> None:
    far = np.full(4, 1e6, np.float32)
    assert rule.value_room(far, np.zeros(4, np.float32)) is None
    assert not leaves_out(rule, target=far, value=0.0 * far, multiplications=LARGE)


@pytest.mark.parametrize("near", [0, 25, 26, 100])
def test_values_are_left_out_where_most_are_far_and_the_network_is_large(near: int) -> None:
    value, target = np.zeros(100, np.float32), np.full(100, 1.1 * BOUND, np.float32)
    target[:near] = 0.5 * BOUND
    few = near <= 25
    assert leaves_out(RULE, target=target, value=value, multiplications=LARGE) is few
    assert not leaves_out(RULE, target=target, value=value, multiplications=LARGE - 1)
    target[near:] = math.nan  # may be anywhere
    assert leaves_out(RULE, target=target, value=value, multiplications=LARGE) is False


def test_an_observation_counts_with_its_whole_length() -> None:
    half, parameters = value_function(16)
    mlp = OneMlp.within(parameters, half.mlp)
    for layer in (*mlp.hidden, mlp.head):
        layer.weight[...] = layer.bias[...] = 0.0
    mlp.head.weight[0, 0] = 100.0
    observation = np.full((1, WIDTH), 0.02, np.float32)
    values = DistantValues(
        half,
        RULE,
        observation=observation,
        # The value gets there by less than the observation's length leaves it room for, and by more
        # than the largest of its numbers would.
        target=np.array([BOUND + 0.6], np.float32),
        value=np.zeros(1, np.float32),
        minibatch_size=1,
        parameters=parameters,
        gradient=(gradient := np.zeros_like(parameters)),
    )
    mlp.hidden[0].weight[0] = 0.1
    assert 0.6 < float(values_at(parameters, half, observation)[0]) < 1.0
    (stats,) = values.passes(np.zeros((1, 1), np.int64))
    assert stats[1] == 0.0
    assert gradient.any()


class Steps:
    """A value function's steps over made-up samples, with values left out or not."""

    def __init__(self, *, near_share: float, seed: int = 0) -> None:
        self.half, parameters = value_function(16, 16, seed=seed)
        rng = np.random.default_rng(seed)
        self.observation = rng.normal(size=(120, WIDTH)).astype(np.float32)
        self.value = values_at(parameters, self.half, self.observation).astype(np.float32)
        far = rng.random(120) >= near_share
        away = np.where(far, rng.uniform(BOUND, 20.0, 120), rng.uniform(0.0, BOUND, 120))
        self.target = (self.value + away * rng.choice([-1, 1], 120)).astype(np.float32)
        self.orders = np.stack([rng.permutation(120) for _ in range(12)])
        rule = AdamRule(learning_rate=3e-3, epsilon=1e-8, gradient_norm_max=0.0)
        flat = torch.from_numpy(parameters)
        self.adam = FlatAdam(flat, torch.zeros_like(flat), rule=rule)

    def gradients(self, *, distant: bool) -> Iterator[Floats]:
        half = ValueHalf(
            half=self.half,
            adam=self.adam.part(),
            rule=RULE,
            minibatch_size=25,
            observation=self.observation,
            value_target=self.target,
            value=self.value,
            orders=self.orders,
            distant=distant,
            lent=None,
        )
        return half.gradients(self.adam.parameters.numpy(), self.adam.gradient.numpy())


@pytest.mark.parametrize("near_share", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_steps_are_those_with_all_values(near_share: float, seed: int) -> None:
    left_out, all_in = (Steps(near_share=near_share, seed=seed) for _ in range(2))
    pairs = zip(left_out.gradients(distant=True), all_in.gradients(distant=False), strict=True)
    for number, (ours, expected) in enumerate(pairs):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, err_msg=f"step {number}")
        gradient = all_in.adam.gradient.numpy()
        np.testing.assert_allclose(
            left_out.adam.gradient.numpy(), gradient, rtol=1e-4, atol=1e-5 * np.abs(gradient).max()
        )
        # Both along the same gradient: else rounding would add up.
        left_out.adam.gradient.copy_(all_in.adam.gradient)
        for one in (left_out, all_in):
            assert one.adam.step(expected) is not None
    assert number == 12 * 5 - 1


def test_values_that_come_back_after_all_were_computed_again_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(distant_values, "_CHUNK", 50)
    left_out, all_in = (Steps(near_share=0.1) for _ in range(2))
    biases = [
        OneMlp.within(one.adam.parameters.numpy(), one.half.mlp).head.bias
        for one in (left_out, all_in)
    ]
    # Away in the first pass, so that all values are in vain, and back in the third.
    moves = {0: 30.0, 10: -30.0}
    pairs = zip(left_out.gradients(distant=True), all_in.gradients(distant=False), strict=True)
    for number, (ours, expected) in enumerate(pairs):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, err_msg=f"step {number}")
        for bias in biases:
            bias += moves.get(number, 0.0)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Samples of each way through a network."""
    counts: list[int] = []
    forward = OneMlp.forward

    def counting(self: OneMlp, observation: Floats) -> Any:
        counts.append(len(observation))
        return forward(self, observation)

    monkeypatch.setattr(OneMlp, "forward", counting)
    return counts


def test_few_values_are_computed(counted: list[int]) -> None:
    steps = Steps(near_share=0.1)
    gradients = steps.gradients(distant=True)
    for _ in range(5):
        steps.adam.step(next(gradients))
    assert 0.1 * 120 <= sum(counted) < 40  # of the 120 of a pass
    assert max(counted) < 24


def test_all_are_computed_again_once_as_many_were_in_vain(counted: list[int]) -> None:
    steps = Steps(near_share=0.1)
    gradients = steps.gradients(distant=True)
    in_vain, times = 0, 0
    for _ in range(12):
        counted.clear()
        with_slope = 0
        for _ in range(5):
            stats = next(gradients)
            with_slope += round(24 * (1.0 - float(stats[1])))
            steps.adam.step(stats)
        again = counted[0] == 120
        assert again is (in_vain >= 120)
        computed = sum(counted[1:] if again else counted)
        in_vain = (0 if again else in_vain) + computed - with_slope
        times += again
    assert 0 < times < 6


@pytest.mark.parametrize("where", ["observation", "target", "value"])
@pytest.mark.parametrize("what", [math.nan, math.inf])
def test_what_is_no_number_is_not_left_out(where: str, what: float) -> None:
    steps = Steps(near_share=0.0)
    getattr(steps, where)[7] = what
    with np.errstate(all="ignore"):
        taken = [steps.adam.step(stats) for stats in steps.gradients(distant=True)]
        expected = [steps.adam.step(stats) for stats in steps.gradients(distant=False)]
    assert [one is None for one in taken] == [one is None for one in expected]


def with_far_targets(*args: Any, **kwargs: Any) -> TrainingBatch:
    batch = build_batch(*args, **kwargs)
    batch.value_target[torch.arange(batch.num_samples) % 8 > 0] += 40.0
    return batch


def test_an_update_learns_the_same(monkeypatch: pytest.MonkeyPatch, counted: list[int]) -> None:
    monkeypatch.setattr(ppo, "build_batch", with_far_targets)
    left_out, all_in = (Ppo(CONTINUOUS, SMALL, seed=7, max_rounds=8) for _ in range(2))
    trajectories = round_of(all_in, CONTINUOUS, 0)
    expected = all_in.update(trajectories).stats
    counted.clear()
    monkeypatch.setattr(distant_values, "MIN_MULTIPLICATIONS", 0)
    found = left_out.update(trajectories).stats
    assert min(counted) < SMALL.minibatch_size // 2
    assert found == pytest.approx(expected, rel=1e-3)
    torch.testing.assert_close(left_out.network.flat, all_in.network.flat, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("enough", [True, False])
def test_a_step_is_large_by_its_own_samples(
    enough: bool, monkeypatch: pytest.MonkeyPatch, counted: list[int]
) -> None:
    learner = Ppo(CONTINUOUS, SMALL, seed=7, max_rounds=8)
    work = learner.network.separate_multiplications * SMALL.minibatch_size
    monkeypatch.setattr(distant_values, "MIN_MULTIPLICATIONS", work if enough else work + 1)
    monkeypatch.setattr(ppo, "build_batch", with_far_targets)
    trajectories = round_of(learner, CONTINUOUS, 0)
    counted.clear()
    learner.update(trajectories)
    # Small networks are otherwise run through two at a time.
    assert bool(counted) is enough


def test_the_papers_network_is_large_enough() -> None:
    network = build_network(CONTINUOUS, PAPER, seed=0)
    assert network.separate_multiplications * PAPER.minibatch_size >= LARGE
    small = build_network(CONTINUOUS, STANDARD, seed=0)
    assert small.separate_multiplications * STANDARD.minibatch_size < LARGE
