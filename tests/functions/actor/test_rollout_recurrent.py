"""What a recurrent policy remembers goes on with the episode, wherever its fragments are taken."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from numpy.typing import NDArray

from functions.actor.rollout import evaluate_episode, sample_fragment
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.rollouts import RolloutTask
from shared.environments.building import make_environment
from shared.environments.describing import describe
from shared.environments.state.snapshot import decode, encode
from shared.policy.numpy_policy import NumpyPolicy
from shared.trajectory.trajectory import (
    Trajectory,
    TrajectoryError,
    decode_trajectory,
    encode_trajectory,
)
from tests.shared.policy.recurrent_policies import recurrent_policy

MakeTask = Callable[..., RolloutTask]


class OwnPendulum(PendulumEnv):
    """Its state is not known, being a subclass: its episodes are replayed."""


@pytest.fixture(autouse=True)
def own_environment() -> Any:  # noqa: ANN401 - a generator
    gymnasium.register("Own-v0", entry_point=lambda **_: OwnPendulum(), max_episode_steps=90)
    yield
    del gymnasium.registry["Own-v0"]


def environment(make_task: MakeTask, env_id: str) -> EnvironmentSpec:
    return describe(make_task(env_id).env)


def played(
    make_task: MakeTask,
    policy: NumpyPolicy,
    env_id: str,
    lengths: list[int],
    **more: int,
) -> list[Trajectory]:
    """Play fragments one after the other, each by environments and a policy of its own process."""
    found: list[Trajectory] = []
    starts: tuple[bytes, ...] = ()
    for number, steps in enumerate(lengths):
        task = make_task(
            env_id, steps=2 * steps, num_envs=2, continues=True, seed=number, horizon=90, **more
        )
        envs = [make_environment(task.env) for _ in range(2)]
        found.append(sample_fragment(task, envs, policy, starts=starts))
        starts = found[-1].snapshots
    return found


def remembered(policy: NumpyPolicy, fragments: list[Trajectory]) -> list[NDArray[np.float32]]:
    """Return the log-probabilities # [T, B] of a plain loop over whole episodes."""
    state, found = policy.new_state(2), []
    for fragment in fragments:
        np.testing.assert_array_equal(fragment.recurrent_state, state)
        log_prob = np.zeros_like(fragment.log_prob)
        for t in range(len(log_prob)):
            outputs = policy.outputs(fragment.observation[t], state)
            log_prob[t] = policy.distribution.log_prob(outputs, fragment.action[t])
            state[fragment.terminated[t] | fragment.truncated[t]] = 0.0
        found.append(log_prob)
    return found


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize(
    ("env_id", "more"), [("Pendulum-v1", {}), ("Own-v0", {"replay_steps": 90})]
)
def test_fragments_of_any_length_remember_what_whole_episodes_do(
    env_id: str, more: dict[str, int], cell: str, make_task: MakeTask
) -> None:
    policy = recurrent_policy(environment(make_task, env_id), cell)
    lengths = [16, 1, 73, 90, 256, 20, 10]
    fragments = played(make_task, policy, env_id, lengths, **more)
    for fragment, expected in zip(fragments, remembered(policy, fragments), strict=True):
        np.testing.assert_array_equal(fragment.log_prob, expected)
        assert fragment.begun_anew == 0
    begun = [fragment.recurrent_state.any() for fragment in fragments]
    # The third fragment ends an episode with its last step, and so does the fourth.
    assert begun == [False, True, True, False, False, True, True]


def test_a_trajectory_keeps_the_states_that_it_began_with(make_task: MakeTask) -> None:
    pendulum = environment(make_task, "Pendulum-v1")
    policy = recurrent_policy(pendulum, "lstm")
    fragment = played(make_task, policy, "Pendulum-v1", [16, 16])[1]
    data = encode_trajectory(fragment)
    read = decode_trajectory(data, environment=pendulum, state_size=10)
    np.testing.assert_array_equal(read.recurrent_state, fragment.recurrent_state)
    assert read.recurrent_state.any()
    for size in (0, 9):
        with pytest.raises(TrajectoryError, match="recurrent_state"):
            decode_trajectory(data, environment=pendulum, state_size=size)


def test_a_state_that_no_cell_reaches_is_refused(make_task: MakeTask) -> None:
    pendulum = environment(make_task, "Pendulum-v1")
    fragment = played(make_task, recurrent_policy(pendulum, "lstm"), "Pendulum-v1", [16])[0]
    huge = fragment.recurrent_state.copy()
    huge[1, 7] = -1e30
    data = encode_trajectory(fragment.replaced(recurrent_state=huge))
    with pytest.raises(TrajectoryError, match=r"recurrent_state holds 1e\+30"):
        decode_trajectory(data, environment=pendulum, state_size=10)


@pytest.mark.parametrize("change", ["another policy's", "huge"])
def test_an_episode_whose_state_cannot_be_the_policys_begins_anew(
    make_task: MakeTask, change: str
) -> None:
    pendulum = environment(make_task, "Pendulum-v1")
    before = recurrent_policy(pendulum, "gru" if change == "huge" else "lstm")
    left = played(make_task, before, "Pendulum-v1", [16])[0].snapshots
    if change == "huge":
        state = np.full(5, 1e30, np.float32)
        left = tuple(encode(replace(decode(each), recurrent_state=state)) for each in left)
    task = make_task("Pendulum-v1", steps=32, num_envs=2, continues=True)
    envs = [make_environment(task.env) for _ in range(2)]
    anew = sample_fragment(task, envs, recurrent_policy(pendulum, "gru"), starts=left)
    assert anew.begun_anew == 2
    assert not anew.recurrent_state.any()


def test_an_episode_that_is_dropped_is_sampled_again_without_its_memory(
    make_task: MakeTask,
) -> None:
    """The environment's second episode has an infinite reward, and is filled again."""

    class Breaking(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,))
        action_space = gymnasium.spaces.Box(-1, 1, (1,))

        def __init__(self) -> None:
            self.episode = self.at = 0

        def reset(self, **_: object) -> tuple[NDArray[np.float32], dict[str, object]]:
            self.episode, self.at = self.episode + 1, 0
            return np.full(3, self.episode, np.float32), {}

        def step(
            self, action: NDArray[np.float32]
        ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, object]]:
            self.at += 1
            reward = np.inf if self.episode == 2 else 1.0
            return np.full(3, 0.1 * self.at, np.float32), reward, self.at == 4, False, {}

    policy = recurrent_policy(environment(make_task, "Pendulum-v1"), "gru")
    fragment = sample_fragment(make_task(steps=14), [Breaking()], policy)
    assert fragment.dropped_episodes == 1
    state, expected = policy.new_state(1), []
    for t in range(14):
        outputs = policy.outputs(fragment.observation[t], state)
        expected.append(policy.distribution.log_prob(outputs, fragment.action[t]))
        state[fragment.terminated[t]] = 0.0
    np.testing.assert_array_equal(fragment.log_prob, expected)


def test_an_evaluation_remembers_each_episode_by_itself(make_task: MakeTask) -> None:
    policy = recurrent_policy(environment(make_task, "Pendulum-v1"), "lstm")
    task = make_task("Pendulum-v1", mode="evaluate")
    env = make_environment(task.env)
    once, again = (evaluate_episode(task, env, policy) for _ in range(2))
    assert once == again
    observation, _ = env.reset(seed=task.seed)
    total, state = 0.0, policy.new_state(1)
    for _ in range(once.length):
        mode = policy.mode(observation[np.newaxis], state)
        observation, reward, *_ = env.step(np.clip(2 * mode[0], -2, 2))
        total += float(reward)
    assert once.episode_return == pytest.approx(total)
