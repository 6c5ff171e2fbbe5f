"""The training batch against a naive per-sample reconstruction of the same trajectories."""

import numpy as np
import pytest
import torch
from torch import Tensor

from learning.data.batch import joined
from learning.data.batch_building import network_input, on_policy_batch
from learning.data.normalisation import Normalisation
from learning.networks.actor_critic import ActorCritic
from learning.networks.building import build_network
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.ppo import STANDARD, PpoHyperparameters
from shared.trajectory.columns import Columns
from shared.trajectory.trajectory import Trajectory
from tests.learning.returns.test_gae import naive_advantages
from tests.learning.trajectories import CONTINUOUS, DISCRETE, make_trajectory

SMALL = PpoHyperparameters(hidden_sizes=(8, 8))


def network_for(environment: EnvironmentSpec) -> ActorCritic:
    return build_network(environment, SMALL, seed=1)


def batch_of(trajectories: list[Trajectory], network: ActorCritic) -> Columns[Tensor]:
    return on_policy_batch(trajectories, network, discount=0.9, gae_lambda=0.8)


@pytest.mark.parametrize("environment", [CONTINUOUS, DISCRETE])
def test_samples_stand_actor_by_actor_environment_by_environment_in_time_order(
    environment: EnvironmentSpec,
) -> None:
    network = network_for(environment)
    trajectories = [make_trajectory(environment, network, actor_index=i) for i in (0, 1)]
    batch = batch_of(trajectories, network)
    n = 0
    for trajectory in trajectories:
        for b in range(2):
            for t in range(24):
                expected = trajectory.observation[t, b].reshape(-1)
                np.testing.assert_array_equal(batch.observation[n].numpy(), expected)
                np.testing.assert_array_equal(batch.action[n].numpy(), trajectory.action[t, b])
                assert batch.behaviour_log_prob[n] == trajectory.log_prob[t, b]
                n += 1
    assert n == batch.num_samples


def test_advantages_bootstrap_each_cut_episode_from_its_own_final_observation() -> None:
    network = network_for(CONTINUOUS)
    trajectories = [make_trajectory(CONTINUOUS, network, actor_index=i) for i in (0, 1, 2)]
    assert all(len(t.final_observation) > 1 for t in trajectories)
    batch = batch_of(trajectories, network)

    def value(observation: np.ndarray) -> float:
        return network.values(torch.from_numpy(observation[None])).item()

    raw, targets = [], []
    for trajectory in trajectories:
        final = iter(trajectory.final_observation)
        v, next_v = np.zeros((24, 2)), np.zeros((24, 2))
        for t in range(24):
            for b in range(2):
                v[t, b] = value(trajectory.observation[t, b])
                cut = trajectory.truncated[t, b] and not trajectory.terminated[t, b]
                next_v[t, b] = value(next(final) if cut else trajectory.observation[t + 1, b])
        advantage = naive_advantages(
            trajectory.reward.astype(np.float64),
            v,
            next_v,
            trajectory.terminated,
            trajectory.truncated,
            0.9,
            0.8,
        )
        raw.append(advantage.T.reshape(-1))
        targets.append((advantage + v).T.reshape(-1))
    advantage = np.concatenate(raw)
    np.testing.assert_allclose(batch.value_target.numpy(), np.concatenate(targets), atol=1e-5)
    expected = (advantage - advantage.mean()) / advantage.std()
    np.testing.assert_allclose(batch.advantage.numpy(), expected, atol=1e-5)


def test_joined_batches_have_the_samples_and_trajectories_of_all_in_their_order() -> None:
    network = network_for(CONTINUOUS)
    made = [make_trajectory(CONTINUOUS, network, actor_index=i) for i in range(5)]
    first, second = batch_of(made[:3], network), batch_of(made[3:], network)
    assert (first.num_trajectories, second.num_trajectories) == (3, 2)
    both = joined([first, second])
    assert both.num_trajectories == 5
    assert torch.equal(both.observation[: 3 * 48], first.observation)
    assert torch.equal(both.value_target[3 * 48 :], second.value_target)


def test_recomputed_log_probs_agree_with_the_actors() -> None:
    network = network_for(CONTINUOUS)
    batch = batch_of([make_trajectory(CONTINUOUS, network, actor_index=0)], network)
    torch.testing.assert_close(batch.log_prob, batch.behaviour_log_prob, atol=1e-6, rtol=0)


def test_log_probs_before_the_update_are_recomputed_whatever_the_actors_report() -> None:
    network = network_for(CONTINUOUS)
    trajectory = make_trajectory(CONTINUOUS, network, actor_index=0)
    batch = batch_of([trajectory.replaced(log_prob=trajectory.log_prob + 0.5)], network)
    assert torch.equal(batch.log_prob, batch_of([trajectory], network).log_prob)
    difference = batch.behaviour_log_prob - batch.log_prob
    torch.testing.assert_close(difference, torch.full((48,), 0.5), atol=1e-5, rtol=0)


def test_an_episode_that_ends_in_both_ways_at_once_is_one_that_terminates() -> None:
    network = network_for(CONTINUOUS)
    trajectory = make_trajectory(CONTINUOUS, network, actor_index=0)
    assert trajectory.truncated.any()
    both = trajectory.replaced(
        terminated=trajectory.terminated | trajectory.truncated,
        final_observation=trajectory.final_observation[:0],
    )
    terminates = both.replaced(truncated=np.zeros_like(both.truncated))
    found, expected = batch_of([both], network), batch_of([terminates], network)
    assert torch.equal(found.value_target, expected.value_target)
    assert torch.equal(found.advantage, expected.advantage)


def test_stored_arrays_may_be_read_only() -> None:
    network = network_for(CONTINUOUS)
    trajectory = make_trajectory(CONTINUOUS, network, actor_index=0)
    for array in (trajectory.observation, trajectory.final_observation, trajectory.reward):
        array.setflags(write=False)
    assert batch_of([trajectory], network).num_samples == 48


def test_byte_observations_are_read_as_floats() -> None:
    network = network_for(CONTINUOUS)
    trajectory = make_trajectory(CONTINUOUS, network, actor_index=0)
    as_bytes = trajectory.replaced(
        observation=trajectory.observation.astype(np.uint8),
        final_observation=trajectory.final_observation.astype(np.uint8),
    )
    assert batch_of([as_bytes], network).observation.dtype == torch.float32


def test_images_are_bytes_of_three_dimensions_and_all_else_is_flat() -> None:
    for dtype, shape, expected in (
        (torch.uint8, (3, 4, 5), (3, 4, 5)),
        (torch.float32, (3, 4, 5), (60,)),
        (torch.uint8, (4, 5), (20,)),
    ):
        found = network_input(torch.ones((7, 2, *shape), dtype=dtype), keep=2)
        assert found.shape == (7, 2, *expected)
        assert found.dtype == (torch.uint8 if len(expected) == 3 else torch.float32)


def test_impossible_rounds_are_refused() -> None:
    network = network_for(CONTINUOUS)
    first = make_trajectory(CONTINUOUS, network, actor_index=0)
    shorter = make_trajectory(CONTINUOUS, network, actor_index=1, num_steps=5)
    with pytest.raises(ValueError, match="at least one trajectory"):
        batch_of([], network)
    with pytest.raises(ValueError, match=r"distinct, got \[0, 0\]"):
        batch_of([first, first], network)
    with pytest.raises(ValueError, match=r"one length, got \[5, 24\]"):
        batch_of([first, shorter], network)
    with pytest.raises(ValueError, match="0 final observations for"):
        batch_of([first.replaced(final_observation=first.final_observation[:0])], network)
    uncut = first.replaced(truncated=np.zeros_like(first.truncated))
    with pytest.raises(ValueError, match="final observations for 0 truncated steps"):
        batch_of([uncut], network)


@pytest.mark.parametrize("environment", [CONTINUOUS, DISCRETE])
def test_a_normalised_batch_is_that_of_normalised_trajectories(
    environment: EnvironmentSpec,
) -> None:
    network = network_for(environment)
    trajectories = [make_trajectory(environment, network, actor_index=i) for i in (0, 1, 2)]
    rule = STANDARD.model_copy(update={"observation_clip": 1.0, "reward_clip": 0.5})
    statistics = Normalisation.initial(environment, rule).after(trajectories)
    assert statistics.observations is not None
    assert statistics.rewards is not None
    batch = on_policy_batch(
        trajectories,
        network,
        discount=0.9,
        gae_lambda=0.8,
        normalisation=statistics,
    )

    size = int(np.prod(environment.observation.shape))
    rows = np.concatenate([t.observation[:-1].reshape(-1, size) for t in trajectories])

    def normalised(observation: np.ndarray) -> np.ndarray:
        flat = observation.reshape(*observation.shape[: -len(environment.observation.shape)], size)
        z = (flat - rows.mean(axis=0, dtype=np.float64)) / rows.std(axis=0, dtype=np.float64)
        return np.asarray(np.clip(z, -1.0, 1.0), np.float32).reshape(observation.shape)

    scaled = statistics.rewards.apply(torch.from_numpy(trajectories[0].reward)).numpy()
    assert scaled.min() < scaled.max() == 0.5
    by_hand = batch_of(
        [
            t.replaced(
                observation=normalised(t.observation),
                final_observation=normalised(t.final_observation),
                reward=statistics.rewards.apply(torch.from_numpy(t.reward)).numpy(),
            )
            for t in trajectories
        ],
        network,
    )
    for name, found in batch.arrays.items():
        expected = by_hand.arrays[name]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
