"""Updates with a weight of the policy in the second process: the same bits, whatever happens."""

import math
import sys
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from services.learner import gemm
from services.learner.algorithms import halved_steps, lent_weight, network_steps, ppo
from services.learner.algorithms.lent_weight import (
    Borrower,
    Lender,
    LentWeight,
    lendable,
    policy_pieces,
)
from services.learner.algorithms.optimiser import AdamPart, AdamRule
from services.learner.batch import TrainingBatch, build_batch
from services.learner.networks import build_network
from services.learner.numpy_mlp import MlpPlaces, WeightPlace
from services.learner.second_process import SHARED_FLOATS, SecondProcess, Side
from shared.ppo_hyperparameters import PpoHyperparameters
from tests.services.learner.algorithms.test_distant_values import with_far_targets
from tests.services.learner.algorithms.test_halved_steps import (
    assert_a_lost_process_is_done_without,
    assert_equal_updates,
    assert_spoilt_steps_are_left_out,
    pair,
)
from tests.services.learner.algorithms.test_ppo import FREE, SMALL, assert_same_state, round_of
from tests.services.learner.trajectories import CONTINUOUS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks safely")


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> list[LentWeight]:
    """What was lent, update by update; small networks lend, too, and always."""
    found: list[LentWeight] = []

    def lender(weight: LentWeight, side: Side) -> Lender:
        found.append(weight)
        return Lender(weight, side)

    monkeypatch.setattr(lent_weight, "MIN_MULTIPLICATIONS", 0)
    monkeypatch.setattr(network_steps, "leaves_out", lambda *_args, **_kwargs: True)
    monkeypatch.setattr(halved_steps, "Lender", lender)
    return found


@pytest.mark.usefixtures("large")  # before the process is forked
@pytest.mark.parametrize("hidden_sizes", [(16, 16), (8, 24, 16), (16, 32, 32, 16)])
@pytest.mark.parametrize("hyperparameters", [SMALL, FREE])
def test_the_bits_are_those_of_one_process(
    hyperparameters: PpoHyperparameters,
    hidden_sizes: tuple[int, ...],
    lent: list[LentWeight],
    process: SecondProcess,
) -> None:
    update = {"hidden_sizes": hidden_sizes, "gradient_norm_max": 0.3}
    assert_equal_updates(hyperparameters.model_copy(update=update), process, rounds=2)
    # The largest between two hidden layers, and of equal ones the last.
    expected = {2: (16, 16), 3: (16, 24), 4: (32, 32)}[len(hidden_sizes)]
    assert [one.place.shape for one in lent] == [expected] * 2
    assert [one.place.index for one in lent] == [{2: 1, 3: 2, 4: 2}[len(hidden_sizes)]] * 2


@pytest.mark.usefixtures("large")
def test_so_they_are_where_most_values_are_left_out(
    lent: list[LentWeight], process: SecondProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ppo, "build_batch", with_far_targets)
    assert_equal_updates(SMALL, process, rounds=3)
    assert len(lent) == 3


@pytest.mark.usefixtures("lent", "large")
@pytest.mark.parametrize("hidden_sizes", [(17, 19), (9, 23, 15), (8, 17)])
def test_so_they_are_where_no_size_is_a_multiple_of_anything(
    hidden_sizes: tuple[int, ...], process: SecondProcess
) -> None:
    assert_equal_updates(SMALL.model_copy(update={"hidden_sizes": hidden_sizes}), process, rounds=3)


def with_few_advantages(*args: Any, **kwargs: Any) -> TrainingBatch:
    batch = build_batch(*args, **kwargs)
    batch.advantage[torch.arange(batch.num_samples) % 5 > 0] = 0.0
    return batch


@pytest.mark.usefixtures("large")
def test_a_policy_of_which_few_samples_move_hands_over_those(
    lent: list[LentWeight], process: SecondProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    give = Lender.give

    def counted(self: Lender, delta: Any, h: Any) -> None:
        given.append(len(delta))
        give(self, delta, h)

    monkeypatch.setattr(Lender, "give", counted)
    monkeypatch.setattr(ppo, "build_batch", with_few_advantages)
    update = {"kl_coefficient": 0.0, "entropy_coefficient": 0.0}
    assert_equal_updates(SMALL.model_copy(update=update), process, rounds=2)
    assert lent
    assert 0 < max(given) <= SMALL.minibatch_size // 2


def test_both_sides_sum_the_squares_in_the_order_of_one_process() -> None:
    place = WeightPlace(index=1, start=0, shape=(4, 4))
    lent = LentWeight(place=place, max_samples=1)
    # The rest of the policy's, the weight's, the value function's: in another order 2 are lost.
    rest, ours, value = 1.0, 1.0, 2.0**53
    expected = (rest + ours) + value
    assert expected != rest + (ours + value)

    side = Mock(spec=Side, shared=np.zeros(64, np.float32))
    side.take.side_effect = [ours, value]
    assert Lender(lent, side).whole(rest) == expected

    zeros = np.zeros(16, np.float32)
    rule = AdamRule(learning_rate=0.01, epsilon=1e-5, gradient_norm_max=0.0)
    part = AdamPart(parameters=zeros, exp_avg=zeros, exp_avg_sq=zeros, steps=0, rule=rule)
    side.take.side_effect = [1.0, rest]
    _, delta, h = lent.within(side.shared)
    delta[0, 0] = h[0, 0] = math.sqrt(ours)
    assert Borrower(lent, part, side).step(value) == expected


@pytest.mark.parametrize("which", ["policy", "value"])
def test_a_step_that_one_half_cannot_take_is_left_out_by_both(
    which: str,
    lent: list[LentWeight],
    process: SecondProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert_spoilt_steps_are_left_out(which, process, monkeypatch)
    assert lent


@pytest.fixture(params=[math.nan, math.inf, 1e25])
def spoilt(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Now and then one number of the lent weight's gradient is out of range, and nothing else."""
    multiply = gemm.array_matmul

    def spoiling(a: Any, b: Any, out: Any = None) -> Any:
        product = multiply(a, b, out=out)
        if product.shape == (32, 16) and product[:1, :1].copy().view(np.int32).item() % 4 == 0:
            product[1, 2] = request.param
        return product

    monkeypatch.setattr(gemm, "MIN_MULTIPLICATIONS", 0)
    monkeypatch.setattr(gemm, "array_matmul", spoiling)


@pytest.mark.usefixtures("spoilt")  # before the process is forked
def test_a_step_whose_lent_gradient_is_not_finite_is_left_out_by_both(
    lent: list[LentWeight], process: SecondProcess
) -> None:
    update = {"hidden_sizes": (16, 32), "gradient_norm_max": 0.3}
    alone, beside = pair(CONTINUOUS, SMALL.model_copy(update=update), process)
    stats = []
    for k in range(3):
        trajectories = round_of(alone, CONTINUOUS, k)
        stats.append(alone.update(trajectories).stats)
        assert beside.update(trajectories).stats == stats[-1]
        assert_same_state(alone, beside)
    skipped, taken = (
        sum(one[name] for one in stats) for name in ("skipped_steps", "num_minibatches")
    )
    assert 0 < skipped < taken
    assert len(lent) == 3


@pytest.mark.parametrize("turn", [0, 1, 2, 4, 50])
def test_an_update_that_loses_the_process_is_done_without_it(
    turn: int, lent: list[LentWeight], process: SecondProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_a_lost_process_is_done_without(turn, process, monkeypatch)
    assert len(lent) == 2


def test_updates_with_and_without_a_loan_follow_each_other(
    lent: list[LentWeight], process: SecondProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    lends = iter([True, True, False, False] * 2)  # alone, and beside the process
    monkeypatch.setattr(network_steps, "leaves_out", lambda *_args, **_kwargs: next(lends))
    assert_equal_updates(SMALL, process, rounds=4)
    assert len(lent) == 2


def halves_of(*hidden_sizes: int) -> Any:
    halves = build_network(
        CONTINUOUS, PpoHyperparameters(hidden_sizes=hidden_sizes), seed=0
    ).halves()
    assert halves is not None
    return halves[0]


def test_what_saves_nothing_is_not_lent() -> None:
    assert lendable(halves_of(256, 256), 128) is not None
    assert lendable(halves_of(256, 256), 32) is None  # too little work
    assert lendable(halves_of(1024), 4096) is None  # nothing between two hidden layers
    assert lendable(halves_of(64, 64), 64) is None


def test_what_adams_kernel_does_not_take_whole_is_not_lent() -> None:
    assert lendable(halves_of(200, 200), 128) is not None
    assert lendable(halves_of(200, 333), 128) is None  # 8 numbers left over
    assert lendable(halves_of(257, 255), 128) is None


def test_what_does_not_fit_into_memory_is_not_lent() -> None:
    places = halves_of(256, 256).mlp
    assert isinstance(places, MlpPlaces)
    place = places.largest_inner()
    assert place is not None
    rest = SHARED_FLOATS - place.size
    assert LentWeight(place=place, max_samples=rest // 512).fits
    assert not LentWeight(place=place, max_samples=rest // 512 + 1).fits
    assert lendable(halves_of(256, 256), SHARED_FLOATS // 512) is None


def test_views_of_the_memory_do_not_overlap() -> None:
    place = halves_of(24, 17).mlp.largest_inner()
    shared = np.zeros(4096, np.float32)
    views = LentWeight(place=place, max_samples=5).within(shared)
    assert [view.shape for view in views] == [(17, 24), (5, 17), (5, 24)]
    for number, view in enumerate(views, 1):
        assert not view.any()
        view[:] = number


def test_pieces_cover_the_policy_once() -> None:
    policy = halves_of(256, 256)
    seen = np.zeros(policy.size, int)
    weight = lendable(policy, 128)
    assert weight is not None
    *_, last = pieces = policy_pieces(policy, weight)
    for piece in pieces:
        seen[piece] += 1
    assert (seen == 1).all()
    assert last == weight.place.span
    assert policy_pieces(policy, None) == (slice(0, policy.size),)
