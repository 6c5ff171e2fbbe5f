"""ARS against a version of a few lines, and its exact state."""

import numpy as np
import pytest
from numpy.typing import NDArray

from learning.algorithms.algorithm import Algorithm, learn_round
from learning.algorithms.ars import Ars
from shared.contracts.rollouts import SearchTask
from shared.hyperparameters.ars import ArsHyperparameters
from shared.policy.numpy_policy import NumpyPolicy, load_policy
from shared.trajectory.directions import direction
from shared.trajectory.episode_sums import EpisodeSums
from tests.learning.trajectories import CONTINUOUS, DISCRETE

RULE = ArsHyperparameters(
    directions=5, top_directions=3, step_size=0.1, exploration_std=0.2, reward_offset=0.5
)
SEED = 7
OBSERVATION, ACTION = 5, 2


def learner(rule: ArsHyperparameters = RULE, *, seed: int = SEED) -> Ars:
    return Ars(CONTINUOUS, rule, seed=seed)


def policy(ars: Ars) -> NumpyPolicy:
    return load_policy(*ars.policy_payload())


class Played:
    """An iteration's episodes as they were, with random numbers for rewards and observations."""

    def __init__(self, iteration: int, *, directions: int = RULE.directions) -> None:
        rng = np.random.default_rng(iteration)
        self.iteration, self.directions = iteration, directions
        self.rewards = [rng.standard_normal(rng.integers(1, 9)) for _ in range(2 * directions)]
        self.observed = [3 + rng.standard_normal((len(r), OBSERVATION)) for r in self.rewards]

    def sums(self, num_parts: int, *, lost: tuple[int, ...] = ()) -> list[EpisodeSums]:
        """It in so many parts."""
        task = SearchTask(
            seed=SEED,
            directions=self.directions,
            parts=num_parts,
            exploration_std=RULE.exploration_std,
            longest=9,
            moments=True,
        )
        return [self._part(i, task.episodes(i)) for i in range(num_parts) if i not in lost]

    def _part(self, number: int, episodes: range) -> EpisodeSums:
        observed = [self.observed[e] for e in episodes]
        return EpisodeSums(
            job_id="job",
            round=0,
            actor_index=number,
            policy_version=self.iteration,
            episode=np.array(episodes),
            episode_returns=np.array([self.rewards[e].sum() for e in episodes]),
            episode_lengths=np.array([len(self.rewards[e]) for e in episodes], np.int32),
            observation_mean=np.stack([rows.mean(axis=0) for rows in observed]),
            observation_m2=np.stack([((r - r.mean(axis=0)) ** 2).sum(axis=0) for r in observed]),
        )


def naive_step(weights: NDArray[np.float64], played: Played) -> NDArray[np.float64]:
    """Algorithm 2 of arXiv 1803.07055, lines 5 to 7, as it stands there."""
    pairs = []
    for k in range(RULE.directions):
        delta = direction(SEED, played.iteration, k, weights.size)
        back = played.rewards[k + RULE.directions]
        r_plus, r_minus = ((r - RULE.reward_offset).sum() for r in (played.rewards[k], back))
        pairs.append((max(r_plus, r_minus), r_plus, r_minus, delta))
    pairs.sort(key=lambda pair: -pair[0])
    top = pairs[: RULE.top_directions]
    sigma = np.std([r for _, plus, minus, _ in top for r in (plus, minus)])
    moved = weights.copy()
    for _, plus, minus, delta in top:
        moved += RULE.step_size / (RULE.top_directions * sigma) * (plus - minus) * delta
    return moved


def test_weights_and_statistics_are_those_of_the_paper() -> None:
    ars, weights = learner(), np.zeros(ACTION * OBSERVATION)  # the paper's policies have no bias
    observed = np.empty((0, OBSERVATION))
    for iteration in range(4):
        played = Played(iteration)
        learn_round(ars, played.sums(4))
        weights = naive_step(weights, played)
        observed = np.concatenate([observed, *played.observed])
    acting = policy(ars)
    seen = np.clip((np.arange(5.0) - observed.mean(axis=0)) / observed.std(axis=0), -10, 10)
    matrix = weights.reshape(ACTION, OBSERVATION)
    action = acting.mode(np.arange(5.0, dtype=np.float32))
    assert action == pytest.approx(matrix @ seen, rel=1e-5)
    assert np.linalg.norm(action) > 0.1


@pytest.mark.parametrize("num_parts", [1, 3, 10])
def test_neither_the_number_of_parts_nor_the_order_of_answers_changes_a_bit(
    num_parts: int,
) -> None:
    one, other = learner(), learner()
    for iteration in range(3):
        played = Played(iteration)
        learn_round(one, played.sums(2))
        learn_round(other, played.sums(num_parts)[::-1])
    assert_same_state(one, other)


def assert_same_state(one: Algorithm, other: Algorithm) -> None:
    arrays, others = one.state()[0], other.state()[0]
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        assert array.tobytes() == others[name].tobytes(), name


def test_a_restored_learner_goes_on_with_the_same_bits() -> None:
    one, other = learner(), learner()
    learn_round(one, Played(0).sums(2))
    other.load_state(*one.state())
    for each in (one, other):
        learn_round(each, Played(1).sums(2))
    assert_same_state(one, other)
    with pytest.raises(ValueError, match="wrong arrays"):
        other.load_state({}, {})


def test_a_direction_without_both_episodes_does_not_count() -> None:
    whole, short = learner(), learner()
    played = Played(0)
    best = [
        max((r - RULE.reward_offset).sum() for r in played.rewards[k :: RULE.directions])
        for k in range(RULE.directions)
    ]
    worst = int(np.argmin(best))
    learn_round(whole, played.sums(10))
    update = learn_round(short, played.sums(10, lost=(worst,)))
    assert update.stats["directions"] == RULE.top_directions
    assert short.state()[0]["weights"].tobytes() == whole.state()[0]["weights"].tobytes()


def test_equal_returns_move_nothing() -> None:
    ars, played = learner(), Played(0)
    played.rewards = [np.ones(4) for _ in played.rewards]
    played.observed = [rows[:1].repeat(4, axis=0) for rows in played.observed]
    update = learn_round(ars, played.sums(2))
    assert update.stats["return_std"] == update.stats["step"] == 0.0
    assert not ars.state()[0]["weights"].any()


def counting(played: Played) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return differences r+ - r- # [K] and directions # [K, n] that count, and sigma."""
    ways = np.array([(r - RULE.reward_offset).sum() for r in played.rewards]).reshape(2, -1)
    top = sorted(np.argsort(-ways.max(axis=0))[: RULE.top_directions])
    deltas = [direction(SEED, played.iteration, k, ACTION * OBSERVATION) for k in top]
    return (ways[0] - ways[1])[top], np.stack(deltas), float(ways[:, top].std())


def test_noise_is_that_of_single_directions_steps() -> None:
    ars, played = learner(), Played(0)
    update = learn_round(ars, played.sums(2))
    differences, deltas, sigma = counting(played)
    steps = RULE.step_size / sigma * differences[:, None] * deltas
    variance = float(np.trace(np.cov(steps.T, ddof=1)))
    squared_norm = float(np.linalg.norm(steps.mean(axis=0)) ** 2) - variance / len(steps)
    assert update.stats["gradient_variance"] == pytest.approx(variance)
    assert update.stats["gradient_squared_norm"] == pytest.approx(squared_norm)
    assert update.stats["step"] == pytest.approx(np.linalg.norm(steps.mean(axis=0)))


def test_returns_are_those_of_all_episodes_without_the_offset() -> None:
    played = Played(0)
    stats = learn_round(learner(), played.sums(2)).stats
    returns = [rewards.sum() for rewards in played.rewards]
    assert stats["return_mean"] == pytest.approx(np.mean(returns))
    assert stats["return_std"] == pytest.approx(np.std(returns))
    assert stats["return_max"] == pytest.approx(np.max(returns))


def test_without_a_gradient_or_with_one_direction_there_is_no_noise() -> None:
    alone = learner(RULE.model_copy(update={"directions": 1}))
    equal = Played(0)
    equal.rewards = [np.ones(4) for _ in equal.rewards]
    equal.observed = [rows[:1].repeat(4, axis=0) for rows in equal.observed]
    for ars, played in ((alone, Played(0, directions=1)), (learner(), equal)):
        stats = learn_round(ars, played.sums(1)).stats
        assert not {"gradient_variance", "gradient_squared_norm", "noise_scale"} & stats.keys()


def test_a_linear_policy_begins_at_zero_and_hidden_layers_do_not() -> None:
    assert not learner().state()[0]["weights"].any()
    deep = learner(RULE.model_copy(update={"hidden_sizes": (8, 4)}))
    acting = policy(deep)
    assert not acting.mode(np.ones(OBSERVATION, np.float32)).any()
    assert [acting.arrays[f"policy.{i}.weight"].any() for i in range(3)] == [True, True, False]
    assert not any(acting.arrays[f"policy.{i}.bias"].any() for i in range(3))


def test_what_is_sampled_is_what_is_most_likely() -> None:
    ars = learner()
    learn_round(ars, Played(0).sums(2))
    acting, observation = policy(ars), np.ones((3, OBSERVATION), np.float32)
    sampled, _ = acting.sample(observation, np.random.default_rng(0))
    assert sampled == pytest.approx(acting.mode(observation), abs=1e-6)


def test_discrete_actions_are_the_likeliest_choice() -> None:
    ars = Ars(DISCRETE, ArsHyperparameters(), seed=0)
    assert load_policy(*ars.policy_payload()).distribution.num_choices == 3


def test_as_many_directions_count_as_there_are() -> None:
    assert ArsHyperparameters(directions=5, top_directions=9).num_counting == 5
    with pytest.raises(ValueError, match="greater than"):
        ArsHyperparameters(directions=0)
