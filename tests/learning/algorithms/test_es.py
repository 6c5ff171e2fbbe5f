"""ES against a version of a few lines, and its exact state."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from learning.algorithms.algorithm import learn_round
from learning.algorithms.es import Es, centred_ranks
from shared.hyperparameters.es import EsHyperparameters
from shared.trajectory.directions import direction
from tests.learning.algorithms.test_ars import SEED, Played, assert_same_state
from tests.learning.trajectories import CONTINUOUS

RULE = EsHyperparameters(
    directions=5, hidden_sizes=(3,), learning_rate=0.1, weight_decay=0.2, reward_offset=0.5
)


def learner() -> Es:
    return Es(CONTINUOUS, RULE, seed=SEED)


class NaiveAdam:
    """Algorithm 1 of arXiv 1412.6980 with the step size of its section 2, one number at a time."""

    def __init__(self, size: int) -> None:
        self.mean, self.square, self.time = [0.0] * size, [0.0] * size, 0

    def step(self, gradient: list[float]) -> list[float]:
        self.time += 1
        rate = RULE.learning_rate * math.sqrt(1 - 0.999**self.time) / (1 - 0.9**self.time)
        step = []
        for i, g in enumerate(gradient):
            self.mean[i] = 0.9 * self.mean[i] + 0.1 * g
            self.square[i] = 0.999 * self.square[i] + 0.001 * g * g
            step.append(rate * self.mean[i] / (math.sqrt(self.square[i]) + 1e-8))
        return step


def naive_gradient(weights: NDArray[np.float64], played: Played) -> list[float]:
    """Equation 1 of arXiv 1703.03864 with ranks for returns, and the decay of the weights."""
    returns = [float((r - RULE.reward_offset).sum()) for r in played.rewards]
    ranks = [sum(other < r for other in returns) / (len(returns) - 1) - 0.5 for r in returns]
    total = -RULE.weight_decay * weights
    for k in range(RULE.directions):
        delta = direction(SEED, played.iteration, k, weights.size)
        total = total + (ranks[k] - ranks[k + RULE.directions]) * delta / (2 * RULE.directions)
    return [float(number) for number in total]


def test_weights_are_those_of_the_paper() -> None:
    es = learner()
    weights = es.state()[0]["weights"].astype(np.float64)
    adam = NaiveAdam(weights.size)
    for iteration in range(5):
        played = Played(iteration)
        update = learn_round(es, played.sums(4))
        weights = weights + np.array(adam.step(naive_gradient(weights, played)))
        assert es.state()[0]["weights"] == pytest.approx(weights, abs=1e-12)
        assert update.stats["directions"] == RULE.directions
    assert es.state()[1] == {"adam_steps": 5}


def test_noise_is_that_of_the_gradient_of_ranks() -> None:
    es, played = learner(), Played(1)
    size = es.state()[0]["weights"].size
    stats = learn_round(es, played.sums(2)).stats
    returns = np.array([(r - RULE.reward_offset).sum() for r in played.rewards])
    ranks = returns.argsort().argsort() / (returns.size - 1) - 0.5
    deltas = np.stack([direction(SEED, 1, k, size) for k in range(RULE.directions)])
    gradients = (ranks[: len(deltas)] - ranks[len(deltas) :])[:, None] * deltas / 2
    variance = float(np.trace(np.cov(gradients.T, ddof=1)))
    mean = gradients.mean(axis=0)
    assert stats["gradient_variance"] == pytest.approx(variance)
    assert stats["gradient_squared_norm"] == pytest.approx(mean @ mean - variance / len(deltas))


def test_equal_returns_have_no_noise() -> None:
    played = Played(0)
    played.rewards = [np.ones(4) for _ in played.rewards]
    played.observed = [rows[:1].repeat(4, axis=0) for rows in played.observed]
    stats = learn_round(learner(), played.sums(2)).stats
    assert not {"gradient_variance", "gradient_squared_norm", "noise_scale"} & stats.keys()


def test_neither_the_number_of_actors_nor_the_order_of_answers_changes_a_bit() -> None:
    one, other = learner(), learner()
    for iteration in range(3):
        played = Played(iteration)
        learn_round(one, played.sums(1))
        learn_round(other, played.sums(3)[::-1])
    assert_same_state(one, other)


def test_a_restored_learner_goes_on_with_the_same_bits() -> None:
    one, other = learner(), learner()
    learn_round(one, Played(0).sums(2))
    other.load_state(*one.state())
    for each in (one, other):
        learn_round(each, Played(1).sums(2))
    assert_same_state(one, other)
    assert one.state()[1] == other.state()[1]
    with pytest.raises(ValueError, match="adam_steps"):
        other.load_state(one.state()[0], {})


@pytest.mark.parametrize("optimiser", [False, True])
def test_another_job_begins_with_the_weights_and_with_the_moments_only_if_wanted(
    optimiser: bool,
) -> None:
    earlier, job = learner(), learner()
    learn_round(earlier, Played(0).sums(2))
    job.begin_from(*earlier.state(), optimiser=optimiser)
    arrays, scalars = job.state()
    assert arrays["weights"].tobytes() == earlier.state()[0]["weights"].tobytes()
    assert scalars["adam_steps"] == int(optimiser)
    assert arrays["adam_square"].any() == optimiser


def test_a_direction_that_lost_an_episode_does_not_count() -> None:
    es, before = learner(), learner()
    update = learn_round(es, Played(0).sums(10, lost=(2, 8)))
    assert update.stats["directions"] == 3
    lost = learn_round(before, Played(0).sums(10, lost=tuple(range(5))))
    assert lost.stats["directions"] == 0


def test_equal_returns_share_their_rank() -> None:
    values = np.array([[3.0, 1.0], [3.0, 7.0]])
    assert centred_ranks(values).tolist() == [[0.0, -0.5], [0.0, 0.5]]
    assert not centred_ranks(np.ones((2, 4))).any()
    assert centred_ranks(np.ones((2, 0))).shape == (2, 0)
