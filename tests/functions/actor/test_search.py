"""An actor's part of a search against loops of a few lines over the same environments."""

import random
from typing import Any

import gymnasium
import numpy as np
import pytest

from functions.actor.errors import RolloutError
from functions.actor.search import search_episodes
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.rollouts import RolloutTask, SearchTask
from shared.environments.building import make_environment
from shared.policy.numpy_policy import NumpyPolicy, load_policy
from shared.policy.spec import POLICY_FORMAT
from shared.trajectory.directions import direction
from shared.trajectory.episode_sums import EpisodeSums
from shared.trajectory.seeds import actor_seed
from tests.functions.actor.conftest import ScriptedEnv

ITERATION, SEED, STD = 3, 11, 0.5
SEARCH = SearchTask(
    seed=SEED, directions=3, parts=1, exploration_std=STD, longest=1000, moments=True
)


class Drawing(ScriptedEnv):
    """Draws its rewards from Python's and NumPy's own generators."""

    def __init__(self) -> None:
        super().__init__("...t")

    def step(self, action: object) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, *ends = super().step(action)  # type: ignore[arg-type]
        return observation, random.random() + np.random.random(), *ends  # type: ignore[return-value] # noqa: NPY002


def linear(inputs: int, outputs: int, *, discrete: bool = False) -> NumpyPolicy:
    rng = np.random.default_rng(0)
    arrays = {
        "policy.0.weight": rng.standard_normal((outputs, inputs), np.float32),
        "policy.0.bias": rng.standard_normal(outputs, np.float32),
    }
    metadata = {"format": POLICY_FORMAT, "network": "mlp", "activation": "tanh"}
    if discrete:
        return load_policy(arrays, metadata | {"distribution": "categorical", "log_std": "none"})
    arrays["log_std"] = np.full(outputs, -20, np.float32)
    metadata |= {"distribution": "gaussian", "log_std": "free", "action_mapping": "clip"}
    return load_policy(arrays, metadata)


def searched(
    env_id: str,
    policy: NumpyPolicy,
    search: SearchTask = SEARCH,
    *,
    number: int = ITERATION,
    env: gymnasium.Env[np.ndarray, np.ndarray] | None = None,
) -> EpisodeSums:
    task = RolloutTask(
        mode="sample",
        job_id="job-1",
        round=0,
        attempt=0,
        actor_index=0,
        policy_version=0,
        env=EnvironmentRef(env_id=env_id),
        steps=1,
        search=search,
        seed=0,
    )
    return search_episodes(task, search, number, env or make_environment(task.env), policy)


@pytest.mark.parametrize(
    ("env_id", "inputs", "outputs", "discrete"),
    [("CartPole-v1", 4, 2, True), ("Hopper-v5", 11, 3, False)],
)
def test_each_episode_is_that_of_a_loop_without_any_system(
    env_id: str, inputs: int, outputs: int, discrete: bool
) -> None:
    policy = linear(inputs, outputs, discrete=discrete)
    sums = searched(env_id, policy)
    assert sums.episode.tolist() == list(range(6))
    env = gymnasium.make(env_id)
    weights, bias = policy.arrays["policy.0.weight"].ravel(), policy.arrays["policy.0.bias"]
    for episode in range(6):
        index, sign = episode % 3, 1 if episode < 3 else -1
        moved = weights + sign * STD * direction(SEED, ITERATION, index, weights.size)
        matrix = moved.reshape(outputs, inputs).astype(np.float32)
        seed = actor_seed(SEED, mode="search", round_index=ITERATION, actor_index=index)
        observation, _ = env.reset(seed=seed)
        total, seen, ended = 0.0, [], False
        while not ended:
            row = np.asarray(observation, np.float32)
            seen.append(row.astype(np.float64))
            out = (row[np.newaxis] @ np.ascontiguousarray(matrix.T) + bias)[0]
            action = int(out.argmax()) if discrete else np.clip(out, -1, 1)
            observation, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            ended = terminated or truncated
        assert sums.episode_returns[episode] == total
        assert sums.episode_lengths[episode] == len(seen)
        assert sums.observation_mean[episode] == pytest.approx(np.mean(seen, axis=0))
        assert sums.observation_m2[episode] == pytest.approx(np.var(seen, axis=0) * len(seen))


def test_how_an_iteration_is_divided_does_not_matter() -> None:
    policy = linear(4, 2, discrete=True)
    alone = searched("CartPole-v1", policy)
    for index in range(4):
        shared = SEARCH.model_copy(update={"parts": 4})
        part = searched("CartPole-v1", policy, shared, number=4 * ITERATION + index)
        assert part.episode.tolist() == list(range(index, 6, 4))
        for name, column in part.arrays.items():
            assert (column == alone.arrays[name][part.episode]).all()


def test_what_an_environment_draws_for_itself_follows_from_the_seed_too() -> None:
    policy, env = linear(2, 2, discrete=True), Drawing()
    returns = searched("Scripted-v0", policy, env=env).episode_returns  # type: ignore[arg-type]
    assert (returns[:3] == returns[3:]).all()
    assert len(set(returns)) == 3
    one = SEARCH.model_copy(update={"parts": 3})
    again = searched("Scripted-v0", policy, one, number=3 * ITERATION + 1, env=env)  # type: ignore[arg-type]
    assert (again.episode_returns == returns[[1, 4]]).all()


def test_episodes_are_cut_where_the_job_says_and_moments_are_left_out() -> None:
    search = SEARCH.model_copy(update={"moments": False, "longest": 5})
    sums = searched("CartPole-v1", linear(4, 2, discrete=True), search)
    assert (sums.episode_lengths == 5).all()
    assert sums.observation_mean.shape == sums.observation_m2.shape == (6, 0)


def test_an_episode_that_is_not_finite_is_played_again_and_then_the_environment_is_to_blame() -> (
    None
):
    policy = linear(2, 2, discrete=True)
    sums = searched("Scripted-v0", policy, env=ScriptedEnv(".r..t"))  # type: ignore[arg-type]
    assert sums.dropped_episodes == 6
    assert (sums.episode_lengths == 3).all()
    with pytest.raises(RolloutError, match="reward is not finite"):
        searched("Scripted-v0", policy, env=ScriptedEnv("r"))  # type: ignore[arg-type]
