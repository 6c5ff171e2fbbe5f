"""Seeds of environments and noise, and a fragment's books on episodes."""

from typing import Any

import numpy as np

from functions.actor.fragment import Fragment
from functions.actor.seeds import env_seed, noise_generator
from tests.functions.actor.conftest import ScriptedEnv


def test_the_first_environment_has_the_tasks_own_seed_and_no_two_share_one() -> None:
    assert env_seed(41, 0) == 41
    seeds = [env_seed(seed, b) for seed in range(20) for b in range(1, 20)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_the_noise_is_no_stream_an_environment_could_draw() -> None:
    noise = noise_generator(5).standard_normal(8)
    np.testing.assert_array_equal(noise, noise_generator(5).standard_normal(8))
    for b in range(4):
        theirs = np.random.default_rng(env_seed(5, b)).standard_normal(8)
        assert not np.intersect1d(noise, theirs).size


def test_the_noise_is_another_one_after_each_dropped_episode() -> None:
    drawn = [noise_generator(5, dropped_episodes=n).standard_normal(8) for n in range(4)]
    assert np.unique(drawn).size == 4 * 8


def test_returns_and_lengths_are_the_episodes_own() -> None:
    env = ScriptedEnv("..t.u..b.")
    fragment = Fragment(9, [env], seed=0)
    fragment.start()
    for _ in range(9):
        fragment.step([0])
    # Rewards count the steps from 1: 1 + 2 + 3, 4 + 5, 6 + 7 + 8, and 9 in an episode still open.
    assert fragment.episode_returns == [6.0, 9.0, 21.0]
    assert fragment.episode_lengths == [3, 2, 3]
    np.testing.assert_array_equal(fragment.reward[:, 0], np.arange(1, 10))
    np.testing.assert_array_equal(np.flatnonzero(fragment.terminated), [2, 7])
    np.testing.assert_array_equal(np.flatnonzero(fragment.truncated), [4, 7])
    # Only what was cut without ending has a value worth bootstrapping from.
    np.testing.assert_array_equal(fragment.final_observation, [[1, 2]])


def test_an_end_at_the_last_step_resets_nothing() -> None:
    env = ScriptedEnv("..u")
    fragment = Fragment(3, [env], seed=0)
    fragment.start()
    for _ in range(3):
        fragment.step([0])
    assert env.num_resets == 1
    np.testing.assert_array_equal(fragment.observation[3], fragment.final_observation)


def test_every_reset_and_every_step_is_progress() -> None:
    seen: list[object] = []

    class Watched(ScriptedEnv):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            seen.append(fragment.progress)
            return super().reset(seed=seed, options=options)

        def step(self, action: np.int64) -> Any:
            seen.append(fragment.progress)
            return super().step(action)

    fragment = Fragment(2, [Watched(), Watched(), Watched()], seed=0)
    fragment.start()
    fragment.step([0, 0, 0])
    assert len(set(seen)) == 3 + 3
