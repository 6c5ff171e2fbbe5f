"""Parts of a search's iterations: the policy is perturbed along random directions, both ways.

Invariant: an episode depends only on the job's seed, the iteration, its number in the iteration and
the policy, not on its actor. Both episodes of a direction begin with the same seed, which reduces
the noise in the difference of their returns.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from functions.actor.play import Play
from functions.actor.watchdog import Watchdog
from shared.contracts.rollouts import RolloutTask, SearchTask
from shared.environments.building import Env
from shared.policy.numpy_policy import NumpyPolicy
from shared.trajectory.directions import direction, flat_weights, shaped_weights
from shared.trajectory.episode_sums import EpisodeSums
from shared.trajectory.seeds import actor_seed

_Moments = tuple[NDArray[np.float64], NDArray[np.float64]]


def search_episodes(
    task: RolloutTask,
    search: SearchTask,
    number: int,
    env: Env,
    policy: NumpyPolicy,
    *,
    watchdog: Watchdog | None = None,
) -> EpisodeSums:
    """Play a part of an iteration, with the most likely action at every step.

    An episode with a non-finite value is dropped and replaced.

    Args:
        task: The actor's task.
        search: Its search.
        number: The part's, in the round.
        env: Where to play.
        policy: The iteration's.
        watchdog: Notices a step that hangs.

    Raises:
        RolloutError: As for `functions.actor.rollout.evaluate_episode`.
    """
    version = task.policy_version + number // search.parts
    episodes = search.episodes(number % search.parts)
    weights = flat_weights(policy.spec, policy.arrays)
    returns, lengths, dropped = list[float](), list[int](), 0
    moments = list[_Moments]()
    for episode in episodes:
        way, index = divmod(episode, search.directions)
        step = direction(search.seed, version, index, weights.size) * search.exploration_std
        moved = shaped_weights(policy.spec, weights - step if way else weights + step)
        seed = actor_seed(search.seed, mode="search", round_index=version, actor_index=index)
        play = Play(
            task.env.env_id,
            env,
            policy.with_weights(moved),
            most_steps=search.longest,
            keeps=search.moments,
        )
        play.whole(seed=seed, watchdog=watchdog)
        returns.append(play.episode_return)
        lengths.append(play.length)
        dropped += play.num_dropped
        moments.append(_moments(play.observed))
    return EpisodeSums(
        job_id=task.job_id,
        round=task.round,
        actor_index=number,
        policy_version=version,
        dropped_episodes=dropped,
        episode=np.array(episodes, np.int64),
        episode_returns=np.array(returns),
        episode_lengths=np.array(lengths, np.int32),
        observation_mean=np.stack([mean for mean, _ in moments]),
        observation_m2=np.stack([m2 for _, m2 in moments]),
    )


def _moments(observed: Sequence[NDArray[np.float32]]) -> _Moments:
    """Return mean and squared deviations of observations; empty if none were kept."""
    if not observed:
        return np.empty(0), np.empty(0)
    rows = np.concatenate(observed).reshape(len(observed), -1).astype(np.float64)
    mean = rows.mean(axis=0)
    return mean, np.square(rows - mean).sum(axis=0)
