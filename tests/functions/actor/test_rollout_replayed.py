"""Episodes that go on after their actions were repeated, beside those that go on from a state."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.pendulum import PendulumEnv

from functions.actor.rollout import sample_fragment
from shared.contracts.rollouts import RolloutTask
from shared.environments.building import Env, make_environment
from shared.environments.state.replay import decode, encode
from shared.policy.numpy_policy import NumpyPolicy
from shared.trajectory.trajectory import Trajectory, encode_trajectory

MakeTask = Callable[..., RolloutTask]
LoadPolicy = Callable[[int, int], NumpyPolicy]
LENGTHS = [64, 1, 37, 200, 7, 120]


class OwnPendulum(PendulumEnv):
    """Its state is not known, being a subclass."""


class NoisyPendulum(PendulumEnv):
    """Every now and then the wind blows."""

    def step(self, u: Any) -> Any:  # noqa: ANN401 - as Pendulum's own
        observation, reward, *rest = super().step(u)  # type: ignore[no-untyped-call]
        return observation, reward + os.urandom(1)[0], *rest


@pytest.fixture(autouse=True)
def own_environments() -> Iterator[None]:
    gymnasium.register("Own-v0", entry_point=lambda **_: OwnPendulum(), max_episode_steps=200)
    gymnasium.register("Noisy-v0", entry_point=lambda **_: NoisyPendulum(), max_episode_steps=200)
    yield
    del gymnasium.registry["Own-v0"], gymnasium.registry["Noisy-v0"]


def fragments(
    make_task: MakeTask, policy: NumpyPolicy, env_id: str, **more: int
) -> list[Trajectory]:
    """Play fragments one after the other, each in an environment of its own."""
    played: list[Trajectory] = []
    starts: tuple[bytes, ...] = ()
    num_envs = more.get("num_envs", 1)
    for number, steps in enumerate(LENGTHS):
        task = make_task(env_id, steps=steps * num_envs, continues=True, seed=number, **more)
        envs: list[Env] = [make_environment(task.env) for _ in range(num_envs)]
        played.append(sample_fragment(task, envs, policy, starts=starts))
        starts = played[-1].snapshots
    return played


@pytest.mark.parametrize("num_envs", [1, 3])
def test_a_replay_goes_on_just_as_a_saved_state_does(
    num_envs: int, make_task: MakeTask, load_continuous: LoadPolicy
) -> None:
    policy = load_continuous(3, 1)
    # Cut at 90 steps each episode begins with a seed, whichever way it was left.
    saved = fragments(make_task, policy, "Pendulum-v1", num_envs=num_envs, horizon=90)
    repeated = fragments(
        make_task, policy, "Own-v0", num_envs=num_envs, horizon=90, replay_steps=200
    )
    for one, other in zip(saved, repeated, strict=True):
        np.testing.assert_array_equal(one.observation, other.observation)
        np.testing.assert_array_equal(one.reward, other.reward)
        np.testing.assert_array_equal(one.truncated, other.truncated)
        np.testing.assert_array_equal(one.action, other.action)
        np.testing.assert_array_equal(one.episode_returns, other.episode_returns)
        assert one.earlier_returns == other.earlier_returns
        assert other.begun_anew == other.lost_replays == 0
    assert sum(len(t.episode_lengths) for t in repeated) > num_envs


def test_an_actor_that_is_launched_again_leaves_the_same(
    make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    pytest.importorskip("Box2D", reason="there is no wheel for this machine")
    played = [
        fragments(make_task, load_discrete(8, 4), "LunarLander-v3", replay_steps=1000)
        for _ in range(2)
    ]
    once, again = ([encode_trajectory(each) for each in of] for of in played)
    assert once == again
    assert sum(len(t.episode_lengths) for t in played[0]) > 1


def test_another_episode_is_found_out_and_begins_anew(
    make_task: MakeTask, load_continuous: LoadPolicy
) -> None:
    first, second, *_ = fragments(make_task, load_continuous(3, 1), "Noisy-v0", replay_steps=200)
    assert (first.begun_anew, first.lost_replays) == (0, 0)
    assert (second.begun_anew, second.lost_replays) == (1, 1)
    assert second.earlier_returns == (0.0,)


def test_an_episode_that_is_too_long_begins_anew(
    make_task: MakeTask, load_continuous: LoadPolicy
) -> None:
    played = fragments(make_task, load_continuous(3, 1), "Own-v0", replay_steps=64)
    assert [t.begun_anew for t in played[:3]] == [0, 1, 0]
    assert [t.snapshots == (b"",) for t in played[:3]] == [False, True, False]
    assert all(t.lost_replays == 0 for t in played)


def test_damaged_bytes_begin_anew_and_blame_nobody(
    make_task: MakeTask, load_continuous: LoadPolicy
) -> None:
    task = make_task("Own-v0", steps=8, continues=True, replay_steps=200)
    policy, env = load_continuous(3, 1), make_environment(task.env)
    (left,) = sample_fragment(task, [env], policy).snapshots
    assert encode(decode(left), longest=8) == left
    for damaged in (left[:-1], b"nothing", left[:40] + left):
        anew = sample_fragment(task, [env], policy, starts=[damaged])
        assert (anew.begun_anew, anew.lost_replays) == (1, 0)
