"""Rollouts of a game: lives to learn from, whole games to report."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from functions.actor import play
from functions.actor.fragment import Fragment
from functions.actor.handover import Handover
from functions.actor.rollout import evaluate_episode, sample_fragment
from learning.networks.building import build_network, policy_payload
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.rollouts import RolloutTask
from shared.environments.building import Env, make_environment
from shared.environments.describing import describe
from shared.hyperparameters.ppo import PAPER
from shared.policy.numpy_policy import NumpyPolicy, load_policy
from shared.trajectory.trajectory import decode_trajectory, encode_trajectory

REF = EnvironmentRef(env_id="BreakoutNoFrameskip-v4")


@pytest.fixture(scope="module")
def envs() -> Iterator[list[Env]]:
    made = [make_environment(REF) for _ in range(2)]
    yield made
    for env in made:
        env.close()


@pytest.fixture(scope="module")
def policy() -> NumpyPolicy:
    return load_policy(*policy_payload(build_network(describe(REF), PAPER, seed=0)))


def task(*, steps: int, num_envs: int = 1, seed: int = 5) -> RolloutTask:
    return RolloutTask(
        mode="sample",
        job_id="job",
        round=0,
        attempt=0,
        actor_index=0,
        policy_version=0,
        env=REF,
        steps=steps,
        num_envs=num_envs,
        seed=seed,
    )


def test_lives_end_episodes_and_games_are_reported(envs: list[Env], policy: NumpyPolicy) -> None:
    trajectory = sample_fragment(task(steps=600, num_envs=2), envs, policy)
    assert trajectory.observation.dtype == np.uint8
    assert trajectory.observation.shape == (301, 2, 4, 84, 84)
    num_lives, num_games = int(trajectory.terminated.sum()), len(trajectory.episode_returns)
    assert 2 <= num_games <= num_lives // 5  # five lives each
    assert set(np.unique(trajectory.reward)) <= {-1.0, 0.0, 1.0}
    assert (trajectory.episode_lengths > 50).all()
    # A brick of the lowest rows is worth one point, so the sum of signs is the score.
    assert trajectory.episode_returns.sum() <= trajectory.reward.sum()
    again = sample_fragment(task(steps=600, num_envs=2), envs, policy)
    np.testing.assert_array_equal(again.observation, trajectory.observation)


def test_each_game_is_reported_once_wherever_its_stream_is_left() -> None:
    # Two of three games reach the limit while buttons are pressed between two lives.
    limit, num_steps = {"max_episode_frames": 228}, 150
    envs = [make_environment(EnvironmentRef(env_id=REF.env_id, env_kwargs=limit)) for _ in range(2)]
    actions = np.random.default_rng(0).integers(4, size=num_steps)

    def reported(length: int) -> list[tuple[float, int]]:
        games: list[tuple[float, int]] = []
        snapshots: tuple[bytes, ...] = ()
        for number, first in enumerate(range(0, num_steps, length)):
            one = [envs[number % 2]]
            fragment = Fragment(length, one, seed=5, handover=Handover(one, continues=True))
            fragment.start(snapshots)
            for action in actions[first : first + length]:
                fragment.step([action])
            snapshots = fragment.leave()
            games += zip(fragment.episode_returns, fragment.episode_lengths, strict=True)
        return games

    whole = reported(num_steps)
    assert len(whole) == 3
    for length in (1, 2, 3):
        assert reported(length) == whole


def test_a_fragment_survives_the_wire_in_a_hundredth_of_its_size(
    envs: list[Env], policy: NumpyPolicy
) -> None:
    trajectory = sample_fragment(task(steps=128), envs[:1], policy)
    data = encode_trajectory(trajectory)
    assert len(data) < 200 * 128 + 4096  # and what it costs to show the screen once
    back = decode_trajectory(data, environment=describe(REF))
    np.testing.assert_array_equal(back.observation, trajectory.observation)
    np.testing.assert_array_equal(back.final_observation, trajectory.final_observation)


def test_the_learners_log_probabilities_are_the_actors(
    envs: list[Env], policy: NumpyPolicy
) -> None:
    network = build_network(describe(REF), PAPER, seed=0)
    trajectory = sample_fragment(task(steps=32), envs[:1], policy)
    with torch.no_grad():
        outputs = network.policy_outputs(torch.from_numpy(trajectory.observation[:-1, 0].copy()))
        log_prob = network.distribution.log_prob(outputs, torch.from_numpy(trajectory.action[:, 0]))
    np.testing.assert_allclose(trajectory.log_prob[:, 0], log_prob, atol=1e-5)


def test_an_evaluation_plays_a_whole_game(envs: list[Env], policy: NumpyPolicy) -> None:
    episode = evaluate_episode(
        task(steps=1).model_copy(update={"mode": "evaluate"}), envs[0], policy
    )
    # Five lives of one serve each take longer than the one life that an episode is.
    assert episode.length > 5 * 20
    assert episode.episode_return >= 0
    assert episode.episode_return == int(episode.episode_return)


def test_a_game_that_is_cut_counts_with_its_score_so_far(
    envs: list[Env], policy: NumpyPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation = task(steps=1).model_copy(update={"mode": "evaluate"})
    whole = evaluate_episode(evaluation, envs[0], policy)
    monkeypatch.setattr(play, "MAX_EVALUATION_STEPS", whole.length - 1)
    cut = evaluate_episode(evaluation, envs[0], policy)
    assert cut.length == whole.length - 1
    assert cut.episode_return == whole.episode_return > 0  # the last step scores nothing
