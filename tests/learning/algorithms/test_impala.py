"""IMPALA as a whole: every batch once, in order, by the policy gradient."""

from collections.abc import Sequence

import numpy as np
import pytest

from learning.algorithms.impala import (
    STEP_SCALE_MAX,
    Impala,
    adapted_step_scale,
)
from shared.hyperparameters.impala import STANDARD, ImpalaHyperparameters
from tests.learning.algorithms.off_policy_rounds import IMPALA, Learner, learner, round_of
from tests.learning.trajectories import CONTINUOUS, DISCRETE


def test_every_batch_is_used_once_in_the_order_it_came() -> None:
    made = learner(CONTINUOUS, IMPALA)
    for k in range(3):
        made.add(round_of(made, CONTINUOUS, k, num_actors=2))
    made.advance(10)
    lags = []
    while made.ready:
        assert made.has_fresh
        lags.append(made.update().stats["policy_lag_mean"])
    assert lags == [10.0, 9.0, 8.0]


@pytest.mark.parametrize(("minibatch_size", "steps"), [(65536, 1), (96, 1), (48, 2), (30, 4)])
def test_each_sample_is_in_one_gradient_step(minibatch_size: int, steps: int) -> None:
    made = learner(CONTINUOUS, IMPALA.model_copy(update={"minibatch_size": minibatch_size}))
    made.add(round_of(made, CONTINUOUS, 0, num_actors=2))
    assert made.update().stats["num_minibatches"] == steps
    assert made.state()[1]["adam_step"] == steps


@pytest.mark.parametrize(
    "hyperparameters",
    [
        ImpalaHyperparameters(hidden_sizes=(16,), train_batch_size=96, learning_rate=2e-2),
        STANDARD.model_copy(
            update={
                "hidden_sizes": (16,),
                "train_batch_size": 96,
                "learning_rate": 5e-3,
                "minibatch_size": 24,
                "observation_normalisation": False,
                "learning_rate_decay": "none",
            }
        ),
    ],
    ids=["sum", "mean"],
)
def test_it_learns_which_action_pays_from_stale_trajectories(
    hyperparameters: ImpalaHyperparameters,
) -> None:
    """The reward is 1 + the action's number: after some batches the last action is taken."""
    hyperparameters = hyperparameters.model_copy(update={"discount": 0.5})
    made = Impala(DISCRETE, hyperparameters, seed=1)
    stale = round_of(made, DISCRETE, 0, num_actors=2)
    for k in range(1, 40):
        made.add(stale)
        stale = round_of(made, DISCRETE, k, num_actors=2)
        made.update()
        made.advance(k)
    assert np.mean([t.action.mean() for t in stale]) > 1.6  # 1 at random


@pytest.mark.parametrize(
    ("kl", "expected"),
    [
        (0.0201, 2 / 1.5),
        (0.02, 2.0),
        (0.01, 2.0),
        (0.005, 2.0),
        (0.0049, 3.0),
        (0.0, 3.0),
        (float("inf"), 2 / 1.5),
        (float("nan"), 2 / 1.5),
    ],
)
def test_steps_shrink_beyond_twice_the_kl_target_and_grow_below_half(
    kl: float, expected: float
) -> None:
    assert adapted_step_scale(2.0, kl, target=0.01) == pytest.approx(expected)


def test_steps_are_scaled_within_bounds() -> None:
    scale = 1.0
    for _ in range(50):
        scale = adapted_step_scale(scale, 0.0, target=0.01)
    assert scale == STEP_SCALE_MAX
    for _ in range(50):
        scale = adapted_step_scale(scale, 1.0, target=0.01)
    assert scale == 1 / STEP_SCALE_MAX


def step_sizes(made: Learner, rounds: range) -> list[float]:
    found = []
    for k in rounds:
        made.add(round_of(made, CONTINUOUS, k, num_actors=2))
        found.append(made.update().stats["learning_rate"])
        made.advance(k + 1)
    return found


STEERED = IMPALA.model_copy(update={"train_batch_size": 96, "minibatch_size": 24})


def test_the_step_size_follows_the_kl_divergence_and_is_resumed() -> None:
    far = STEERED.model_copy(update={"kl_target": 1e-9})
    made = learner(CONTINUOUS, far)
    first = far.learning_rate
    assert step_sizes(made, range(3)) == pytest.approx([first, first / 1.5, first / 1.5**2])
    resumed = learner(CONTINUOUS, far)
    resumed.load_state(*made.state())
    assert step_sizes(resumed, range(3, 4)) == pytest.approx([first / 1.5**3])
    near = STEERED.model_copy(update={"kl_target": 1e3})
    assert step_sizes(learner(CONTINUOUS, near), range(2)) == pytest.approx([first, first * 1.5])


def rates_of(made: Learner, actors: Sequence[int], *, first: int = 0) -> list[float]:
    """Learn from rounds of so many actors, whole batches or not; return each update's step size."""
    rates = []
    for k, num_actors in enumerate(actors, first):
        made.add(round_of(made, CONTINUOUS, k, num_actors=num_actors))
        made.flush()
        rates.append(made.update().stats["learning_rate"])
        made.advance(k + 1)
    return rates


def test_a_single_step_says_too_little_to_grow() -> None:
    near = STEERED.model_copy(update={"kl_target": 1e3, "minibatch_size": 96})
    assert rates_of(learner(CONTINUOUS, near), [2, 2, 2]) == [near.learning_rate] * 3


def test_fewer_steps_than_before_say_too_little_to_grow_in_whatever_learner() -> None:
    # A batch of 96 samples is never full: two actors bring as much as there is.
    near = STEERED.model_copy(update={"kl_target": 1e3, "train_batch_size": 960})
    first = near.learning_rate
    made = learner(CONTINUOUS, near)
    assert rates_of(made, [2]) == [first]
    resumed = learner(CONTINUOUS, near)
    resumed.load_state(*made.state())
    # Where rounds have become smaller for good, steps can grow again.
    expected = [first * 1.5, first * 1.5, first * 1.5**2, first * 1.5**3]
    assert rates_of(resumed, [1, 1, 2, 2], first=1) == pytest.approx(expected)


def test_steps_that_were_left_out_shrink_the_next_ones() -> None:
    near = STEERED.model_copy(update={"kl_target": 1e3})
    made = learner(CONTINUOUS, near)
    (good, broken), *_ = [round_of(made, CONTINUOUS, 0, num_actors=2)]
    made.add([good, broken.replaced(reward=np.full_like(broken.reward, np.nan))])
    stats = made.update().stats
    assert stats["skipped_steps"] > 0
    assert stats["step_scale"] == 1.0
    made.add(round_of(made, CONTINUOUS, 1, num_actors=2))
    assert made.update().stats["step_scale"] == pytest.approx(1 / 1.5)


def test_without_a_target_the_step_size_stays_and_nothing_of_it_is_saved() -> None:
    made = learner(CONTINUOUS, IMPALA)
    assert step_sizes(made, range(3)) == [IMPALA.learning_rate] * 3
    assert "step_scale" not in made.state()[1]
