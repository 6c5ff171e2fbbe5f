"""Episodes that go on from fragment to fragment, against one plain loop over all their actions."""

from collections.abc import Callable
from itertools import cycle

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from functions.actor.rollout import sample_fragment
from functions.actor.seeds import env_seed
from shared.contracts.rollouts import RolloutTask
from shared.environments.building import make_environment
from shared.environments.state.snapshot import decode, encode
from shared.policy.numpy_policy import NumpyPolicy
from shared.trajectory.trajectory import Trajectory
from tests.functions.actor.conftest import ENVIRONMENTS, ToEnv

MakeTask = Callable[..., RolloutTask]
LoadPolicy = Callable[[int, int], NumpyPolicy]
CHEETAH: tuple[str, int, int, bool, ToEnv] = (
    "HalfCheetah-v5",
    17,
    6,
    False,
    lambda action: np.clip(action, -1, 1),
)


def fragments(
    make_task: MakeTask,
    policy: NumpyPolicy,
    env_id: str,
    lengths: list[int],
    *,
    num_envs: int = 1,
    **more: object,
) -> list[Trajectory]:
    """Play fragments one after the other, each in the other one of two processes' environments."""
    task = make_task(env_id)
    envs = cycle([[make_environment(task.env) for _ in range(num_envs)] for _ in range(2)])
    more["num_envs"] = num_envs
    played: list[Trajectory] = []
    starts: tuple[bytes, ...] = ()
    for number, steps in enumerate(lengths):
        task = make_task(env_id, steps=steps * num_envs, continues=True, seed=number, **more)
        played.append(sample_fragment(task, next(envs), policy, starts=starts))
        starts = played[-1].snapshots
    return played


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize(
    ("env_id", "size", "actions", "discrete", "to_env"), [*ENVIRONMENTS, CHEETAH]
)
def test_fragments_that_go_on_are_what_plain_loops_see(
    env_id: str,
    size: int,
    actions: int,
    discrete: bool,
    to_env: ToEnv,
    num_envs: int,
    make_task: MakeTask,
    load_discrete: LoadPolicy,
    load_continuous: LoadPolicy,
) -> None:
    policy = (load_discrete if discrete else load_continuous)(size, actions)
    lengths = [64, 1, 37, 500, 7, 600, 250]
    played = fragments(make_task, policy, env_id, lengths, num_envs=num_envs, discount=0.9)
    ended: list[list[tuple[int, int, float, int]]] = [[] for _ in lengths]
    """Of each fragment: step, environment, return and length."""
    for b in range(num_envs):
        total, length, discounted = 0.0, 0, 0.0
        with gymnasium.make(env_id) as plain:
            observation, _ = plain.reset(seed=env_seed(0, b))
            for number, trajectory in enumerate(played):
                assert trajectory.earlier_returns[b] == discounted
                for t in range(lengths[number]):
                    np.testing.assert_array_equal(
                        trajectory.observation[t, b], np.float32(observation)
                    )
                    observation, reward, terminated, truncated, _ = plain.step(
                        to_env(trajectory.action[t, b])
                    )
                    assert trajectory.reward[t, b] == np.float32(reward)
                    assert trajectory.terminated[t, b] == terminated
                    assert trajectory.truncated[t, b] == truncated
                    total, length = total + float(reward), length + 1
                    discounted = 0.9 * discounted + float(reward)
                    if terminated or truncated:
                        ended[number].append((t, b, total, length))
                        total, length, discounted = 0.0, 0, 0.0
                        observation, _ = plain.reset()
    for trajectory, episodes in zip(played, ended, strict=True):
        episodes.sort()
        returns = np.array([each[2] for each in episodes], np.float32)
        np.testing.assert_array_equal(trajectory.episode_returns, returns)
        np.testing.assert_array_equal(trajectory.episode_lengths, [each[3] for each in episodes])
        assert trajectory.begun_anew == 0
    assert any(ended)


def test_an_actor_that_is_launched_again_leaves_the_same(
    make_task: MakeTask, load_continuous: LoadPolicy
) -> None:
    policy = load_continuous(11, 3)
    first = fragments(make_task, policy, "Hopper-v5", [40, 40])
    again = fragments(make_task, policy, "Hopper-v5", [40, 40])
    assert [t.snapshots for t in first] == [t.snapshots for t in again]


@pytest.mark.parametrize("lengths", [[200], [64, 64, 64, 8], [50, 50, 50, 50], [30, 170]])
def test_an_episode_is_cut_at_the_horizon_wherever_fragments_end(
    lengths: list[int], make_task: MakeTask, load_continuous: LoadPolicy
) -> None:
    played = fragments(make_task, load_continuous(17, 6), "HalfCheetah-v5", lengths, horizon=50)
    cuts = np.concatenate([t.truncated[:, 0] for t in played])
    assert np.flatnonzero(cuts).tolist() == [49, 99, 149, 199]
    assert np.concatenate([t.episode_lengths for t in played]).tolist() == [50] * 4
    # The next begins at a start, near the origin of every joint.
    begun = [t.observation[i + 1, 0] for t in played for i in np.flatnonzero(t.truncated[:-1, 0])]
    assert all(np.abs(observation[:8]).max() < 0.5 for observation in begun)
    assert len({observation.tobytes() for observation in begun}) == len(begun)


class Stubborn(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Counts; changes its action in place, and keeps its state only if it is allowed to."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))
    keeps = True

    def reset(self, **_: object) -> tuple[NDArray[np.float32], dict[str, object]]:
        self.total = np.zeros(1, np.float32)
        return self.total.copy(), {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, object]]:
        action *= 2
        self.total += action
        return self.total.copy(), 0.0, False, False, {}

    def get_state(self) -> dict[str, NDArray[np.float32]]:
        if not self.keeps:
            raise RuntimeError("not today")
        return {"total": self.total}

    def set_state(self, state: dict[str, NDArray[np.float32]]) -> None:
        assert self.keeps
        self.total = state["total"]


def test_an_action_that_a_step_changes_is_handed_on_as_it_was_given(
    make_task: MakeTask, load_continuous: LoadPolicy
) -> None:
    policy, task = load_continuous(1, 1), make_task(steps=5, continues=True)
    first = sample_fragment(task, [Stubborn()], policy)
    second = sample_fragment(task, [Stubborn()], policy, starts=first.snapshots)
    np.testing.assert_array_equal(second.observation[0], first.observation[5])


def test_an_environment_that_fails_to_keep_its_state_begins_anew(
    make_task: MakeTask, load_continuous: LoadPolicy
) -> None:
    policy, task = load_continuous(1, 1), make_task(steps=5, continues=True)
    left, env = sample_fragment(task, [Stubborn()], policy), Stubborn()
    env.keeps = False
    anew = sample_fragment(task, [env], policy, starts=left.snapshots)
    assert (anew.begun_anew, anew.snapshots) == (2, (b"",))  # at its start, and at its end
    np.testing.assert_array_equal(anew.observation[0], [[0]])


def test_an_episode_whose_snapshot_is_damaged_begins_anew_and_is_counted(
    make_task: MakeTask, load_continuous: LoadPolicy
) -> None:
    policy = load_continuous(11, 3)
    task = make_task("Hopper-v5", steps=20, continues=True)
    env = make_environment(task.env)
    (left,) = sample_fragment(task, [env], policy).snapshots
    assert encode(decode(left)) == left
    plain = sample_fragment(task, [env], policy)
    for damaged in (b"no snapshot", left[:-1], left[:40] + bytes([left[40] ^ 1]) + left[41:]):
        anew = sample_fragment(task, [env], policy, starts=[damaged])
        assert anew.begun_anew == 1
        np.testing.assert_array_equal(anew.observation, plain.observation)
    assert plain.begun_anew == 0
