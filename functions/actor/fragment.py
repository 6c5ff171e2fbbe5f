"""The arrays of a fragment while its environments are being stepped.

Legend: `T` steps, `B` environments side by side, `F` truncated episodes, `E` finished episodes.
See `shared.trajectory` for what the arrays mean where an episode ends.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from shared.envs import Env


class Fragment:
    """Steps `B` environments side by side for `T` steps and keeps what they return."""

    def __init__(self, num_steps: int, envs: Sequence[Env], *, observation_size: int) -> None:
        steps = (num_steps, len(envs))
        self.observation = np.zeros((num_steps + 1, len(envs), observation_size), np.float32)
        self.reward = np.zeros(steps, np.float32)  # [T, B]
        self.terminated = np.zeros(steps, np.bool_)  # [T, B]
        self.truncated = np.zeros(steps, np.bool_)  # [T, B]
        self.episode_returns: list[float] = []  # E
        self.episode_lengths: list[int] = []  # E
        self.num_done = 0
        """Steps taken so far, counted along T."""
        self._num_steps = num_steps
        self._envs = envs
        self._steps = [env.step for env in envs]
        self._returns = [0.0] * len(envs)
        self._lengths = [0] * len(envs)
        self._final_observations: list[NDArray[np.float32]] = []

    @property
    def final_observation(self) -> NDArray[np.float32]:
        """Last observations of truncated episodes so far, [F, *obs] in (t, b) order."""
        shape = (len(self._final_observations), self.observation.shape[2])
        return np.array(self._final_observations, np.float32).reshape(shape)

    def start(self, *, seed: int) -> None:
        """Reset every environment to the start that the seed decides.

        The first environment is reset with the seed itself, so that a rollout of one environment
        can be repeated by hand.
        """
        for b, env in enumerate(self._envs):
            self.observation[0, b] = env.reset(seed=env_seed(seed, b))[0]

    def step(self, actions: Iterable[object]) -> None:
        """Step every environment with its action; start anew what ended, but for the last step."""
        t = self.num_done
        for b, action in enumerate(actions):
            observation, reward, terminated, truncated, _ = self._steps[b](action)
            self.reward[t, b] = reward
            self._returns[b] += float(reward)
            self._lengths[b] += 1
            if terminated or truncated:
                self.terminated[t, b] = terminated
                self.truncated[t, b] = truncated
                self._end_episode(b)
                if not terminated:
                    self._keep_final(observation)
                if t + 1 < self._num_steps:
                    observation = self._envs[b].reset()[0]
            self.observation[t + 1, b] = observation
        self.num_done = t + 1

    def _keep_final(self, observation: object) -> None:
        final = np.array(observation, np.float32)
        if not np.isfinite(final).all():
            raise ValueError("the final observation of a truncated episode is not finite")
        self._final_observations.append(final)

    def _end_episode(self, b: int) -> None:
        self.episode_returns.append(self._returns[b])
        self.episode_lengths.append(self._lengths[b])
        self._returns[b], self._lengths[b] = 0.0, 0


def env_seed(seed: int, env_index: int) -> int:
    """Return the seed of one of the environments that an actor steps side by side."""
    if env_index == 0:
        return seed
    sequence = np.random.SeedSequence(seed, spawn_key=(env_index,))
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)


def noise_generator(seed: int) -> np.random.Generator:
    """Return the generator of the action noise.

    Not `default_rng(seed)`: Gymnasium seeds an environment's own generator just so, and the noise
    would repeat the very stream that the environment draws its randomness from.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
