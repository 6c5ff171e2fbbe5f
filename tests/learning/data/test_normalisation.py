"""Running statistics against NumPy over all rounds, and what policy and learner make of them."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from learning.data.normalisation import Normalisation, discounted_returns
from learning.networks.building import build_network
from shared.hyperparameters.ppo import PAPER, STANDARD
from shared.policy.observation_scale import ObservationScale
from shared.trajectory import codec
from shared.trajectory.trajectory import Trajectory
from tests.learning.trajectories import DISCRETE, make_trajectory

NETWORK = build_network(DISCRETE, STANDARD, seed=0)
OFFSET = np.array([[3.0, -50.0], [0.0, 1e3]], np.float32)


def round_of(round_index: int, *, num_actors: int = 3) -> list[Trajectory]:
    """Fragments of 2 x 2 observations whose numbers differ in mean and spread."""
    made = [
        make_trajectory(DISCRETE, NETWORK, actor_index=i, seed=round_index)
        for i in range(num_actors)
    ]
    return [
        t.replaced(observation=(t.observation * (1 + OFFSET / 10) + OFFSET).astype(np.float32))
        for t in made
    ]


ROUNDS = [round_of(k) for k in range(3)]


def after_rounds(count: int) -> Normalisation:
    normalisation = Normalisation.initial(DISCRETE, STANDARD)
    for trajectories in ROUNDS[:count]:
        normalisation = normalisation.after(trajectories)
    return normalisation


def seen(normalisation: Normalisation, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    assert normalisation.observations is not None
    return np.asarray(normalisation.observations.apply(torch.from_numpy(rows)))


def test_observations_lose_the_mean_and_deviation_of_all_that_were_acted_on() -> None:
    all_rows = [t.observation[:-1].reshape(-1, 4) for k in range(3) for t in ROUNDS[k]]
    rows = np.concatenate(all_rows).astype(np.float64)
    expected = (rows - rows.mean(axis=0)) / np.sqrt(rows.var(axis=0) + 1e-8)
    found = seen(after_rounds(3), rows.astype(np.float32))
    np.testing.assert_allclose(found, expected, atol=2e-5)
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(found.std(axis=0), 1.0, atol=1e-5)


def test_before_the_first_round_observations_are_only_bounded() -> None:
    rows = np.array([[-3e6, -1.5, 0.0, 11.0]], np.float32)
    np.testing.assert_array_equal(seen(after_rounds(0), rows), [[-10.0, -1.5, 0.0, 10.0]])


def test_the_policy_sees_what_the_learner_sees_to_the_bit() -> None:
    normalisation = after_rounds(2)
    rows = 3 * ROUNDS[2][0].observation.reshape(-1, 4).astype(np.float32)
    arrays, metadata = normalisation.payload()
    scale = ObservationScale(
        arrays["observation_mean"],
        arrays["observation_scale"],
        bound=float(metadata["observation_clip"]),
    )
    in_numpy = scale.apply(rows, out=np.empty_like(rows))
    np.testing.assert_array_equal(seen(normalisation, rows), in_numpy)
    assert np.abs(in_numpy).max() == 10.0


def test_a_constant_number_becomes_0() -> None:
    constant = [t.replaced(observation=np.full_like(t.observation, 0.1)) for t in ROUNDS[0]]
    normalisation = Normalisation.initial(DISCRETE, STANDARD).after(constant)
    np.testing.assert_array_equal(seen(normalisation, np.full((1, 4), 0.1, np.float32)), 0.0)


def naive_returns(trajectory: Trajectory, discount: float) -> list[float]:
    """The discounted sum over each step's episode so far, from its definition, in (b, t) order."""
    returns = []
    for b in range(trajectory.num_envs):
        start = 0
        for t in range(len(trajectory.reward)):
            past = range(start, t + 1)
            returns.append(sum(discount ** (t - s) * float(trajectory.reward[s, b]) for s in past))
            if trajectory.terminated[t, b] or trajectory.truncated[t, b]:
                start = t + 1
    return returns


@pytest.mark.parametrize("discount", [0.0, 0.9, 1.0])
def test_returns_are_discounted_sums_within_an_episode(discount: float) -> None:
    trajectory = ROUNDS[0][0]
    ended = trajectory.terminated | trajectory.truncated
    assert ended.any()
    found = discounted_returns(trajectory.reward, ended, earlier=np.zeros(2), discount=discount)
    np.testing.assert_allclose(found.T.ravel(), naive_returns(trajectory, discount), rtol=1e-12)


def test_rewards_are_divided_by_the_deviation_of_all_returns_so_far() -> None:
    returns = [r for k in range(2) for t in ROUNDS[k] for r in naive_returns(t, STANDARD.discount)]
    scaler = after_rounds(2).rewards
    assert scaler is not None
    reward = torch.tensor([[1.0, -0.3], [-1e6, 1e6]])
    expected = np.clip(reward.numpy() / math.sqrt(np.var(returns) + 1e-8), -10.0, 10.0)
    np.testing.assert_allclose(scaler.apply(reward), expected, rtol=1e-6)
    assert reward[1, 1] == 1e6


@pytest.mark.parametrize("cut", [1, 7, 23])
def test_a_return_goes_on_where_its_episode_goes_on_in_another_fragment(cut: int) -> None:
    whole = ROUNDS[0][0]
    steps = ("reward", "terminated", "truncated")
    first, second = (
        whole.replaced(
            observation=whole.observation[part.start : part.stop + 1],
            **{name: getattr(whole, name)[part] for name in steps},
        )
        for part in (slice(0, cut), slice(cut, 24))
    )
    over = (first.terminated | first.truncated)[-1]
    at_the_end = np.reshape(naive_returns(first, STANDARD.discount), (2, cut))[:, -1]
    second = second.replaced(earlier_returns=tuple(np.where(over, 0.0, at_the_end).tolist()))
    nothing = Normalisation.initial(DISCRETE, STANDARD)
    expected, after_first = nothing.after([whole]).rewards, nothing.after([first])
    found = after_first.after([second]).rewards
    assert expected is not None
    assert found is not None
    np.testing.assert_allclose(found.moments.variance, expected.moments.variance, rtol=1e-9)
    forgotten = after_first.after([second.replaced(earlier_returns=())]).rewards
    assert forgotten is not None
    assert abs(forgotten.moments.variance / expected.moments.variance - 1) > 1e-3


def test_rewards_that_have_all_been_0_stay_0() -> None:
    nothing = [t.replaced(reward=np.zeros_like(t.reward)) for t in ROUNDS[0]]
    scaler = Normalisation.initial(DISCRETE, STANDARD).after(nothing).rewards
    assert scaler is not None
    np.testing.assert_array_equal(scaler.apply(torch.zeros(2, 2)), np.zeros((2, 2)))


def test_they_go_on_from_their_arrays_to_the_bit() -> None:
    saved = codec.decode(codec.encode(after_rounds(2).arrays(), {})).arrays
    resumed = Normalisation.initial(DISCRETE, STANDARD).restored(saved)
    expected = after_rounds(3).arrays()
    found = resumed.after(ROUNDS[2]).arrays()
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].tobytes() == array.tobytes(), name


def test_what_is_not_normalised_has_no_statistics() -> None:
    nothing = Normalisation.initial(DISCRETE, PAPER).after(ROUNDS[0])
    assert nothing.observations is None
    assert nothing.rewards is None
    assert nothing.arrays() == {}
    assert nothing.payload() == ({}, {})
