"""Seeds within a rollout: of each environment's starts, and of the action noise."""

import numpy as np


def env_seed(seed: int, env_index: int, step: int = 0) -> int:
    """Return the seed of an episode that one environment starts at a step."""
    if env_index == step == 0:
        return seed
    spawn_key = (env_index, step) if step else (env_index,)
    sequence = np.random.SeedSequence(seed, spawn_key=spawn_key)
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)


def noise_generator(seed: int, *, dropped_episodes: int = 0) -> np.random.Generator:
    """Return the generator of the action noise, a new one after each dropped episode.

    It is not `default_rng(seed)`: Gymnasium seeds an environment's own generator like this, and the
    noise would repeat the environment's random stream.
    """
    key = (0, dropped_episodes) if dropped_episodes else (0,)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
