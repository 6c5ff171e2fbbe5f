"""Rollouts against a plain Gymnasium loop, and against a toy whose every step is known."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import MultiDiscrete
from numpy.typing import NDArray

from functions.actor import play
from functions.actor.errors import RolloutError
from functions.actor.rollout import evaluate_episode, sample_fragment
from functions.actor.seeds import env_seed, noise_generator
from shared.contracts.rollouts import RolloutTask
from shared.environments.building import make_environment
from shared.environments.describing import describe
from shared.policy.numpy_policy import NumpyPolicy, load_policy
from shared.trajectory.trajectory import decode_trajectory, encode_trajectory
from tests.functions.actor.conftest import ENVIRONMENTS, ScriptedEnv, ToEnv

MakeTask = Callable[..., RolloutTask]
LoadPolicy = Callable[[int, int], NumpyPolicy]
MakePolicy = Callable[[int, int], tuple[dict[str, NDArray[np.generic]], dict[str, str]]]


@pytest.mark.parametrize(("env_id", "size", "actions", "discrete", "to_env"), ENVIRONMENTS)
def test_a_fragment_is_what_a_plain_loop_sees(
    env_id: str,
    size: int,
    actions: int,
    discrete: bool,
    to_env: ToEnv,
    make_task: MakeTask,
    load_discrete: LoadPolicy,
    load_continuous: LoadPolicy,
) -> None:
    task = make_task(env_id, steps=500)
    policy = (load_discrete if discrete else load_continuous)(size, actions)
    env = make_environment(task.env)
    trajectory = sample_fragment(task, [env], policy)
    env.close()
    finals: list[NDArray[np.float32]] = []
    returns: list[float] = []
    lengths: list[int] = []
    total, length = 0.0, 0
    with gymnasium.make(env_id) as plain:
        observation, _ = plain.reset(seed=task.seed)
        for t in range(500):
            np.testing.assert_array_equal(trajectory.observation[t, 0], np.float32(observation))
            observation, reward, terminated, truncated, _ = plain.step(
                to_env(trajectory.action[t, 0])
            )
            assert trajectory.reward[t, 0] == np.float32(reward)
            assert trajectory.terminated[t, 0] == terminated
            assert trajectory.truncated[t, 0] == truncated
            total, length = total + float(reward), length + 1
            if terminated or truncated:
                if not terminated:
                    finals.append(np.array(observation, np.float32))
                returns.append(total)
                lengths.append(length)
                total, length = 0.0, 0
                if t < 499:
                    observation, _ = plain.reset()
    np.testing.assert_array_equal(trajectory.observation[500, 0], np.float32(observation))
    expected_finals = np.reshape(finals, (-1, size))
    np.testing.assert_array_equal(trajectory.final_observation, expected_finals)
    np.testing.assert_array_equal(trajectory.episode_returns, np.array(returns, np.float32))
    np.testing.assert_array_equal(trajectory.episode_lengths, lengths)
    assert lengths
    assert trajectory.log_prob == pytest.approx(
        policy.log_prob(trajectory.observation[:-1], trajectory.action), abs=1e-4
    )


def test_actions_are_drawn_from_the_policy(
    make_task: MakeTask, load_continuous: LoadPolicy
) -> None:
    task = make_task("Pendulum-v1", steps=50)
    policy = load_continuous(3, 1)
    trajectory = sample_fragment(task, [make_environment(task.env)], policy)
    outputs = policy.outputs(trajectory.observation[:-1])
    noise = (trajectory.action - outputs[..., :1]) / np.exp(outputs[..., 1:])
    rng = noise_generator(task.seed)
    expected = np.stack([rng.standard_normal((1, 1), np.float32) for _ in range(50)])
    np.testing.assert_allclose(noise, expected, atol=1e-4)


def test_a_policy_that_clips_and_normalises_acts_so_on_raw_observations(
    make_task: MakeTask, continuous_policy: MakePolicy
) -> None:
    arrays, metadata = continuous_policy(3, 1)
    metadata |= {"observation_clip": "1.5", "action_mapping": "clip"}
    mean, scale = np.array([0.5, 0, -1], np.float32), np.array([2, 1, 0.5], np.float32)
    arrays |= {"observation_mean": mean, "observation_scale": scale}
    policy = load_policy(arrays, metadata)
    task = make_task("Pendulum-v1", steps=300)
    trajectory = sample_fragment(task, [make_environment(task.env)], policy)
    with gymnasium.make("Pendulum-v1") as plain:
        observation, _ = plain.reset(seed=task.seed)
        for t in range(200):
            np.testing.assert_array_equal(trajectory.observation[t, 0], observation)
            observation, *_ = plain.step(np.clip(trajectory.action[t, 0], -2, 2))
    assert np.abs(trajectory.action).max() > 1.0  # where `rescale` would have acted otherwise
    del arrays["observation_mean"], arrays["observation_scale"]
    raw = trajectory.observation[:-1].astype(np.float32)
    seen = np.clip((raw - mean) * scale, -1.5, 1.5)
    expected = load_policy(arrays, metadata).log_prob(seen, trajectory.action)
    np.testing.assert_allclose(trajectory.log_prob, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("script", "terminated", "truncated", "observation", "final", "returns", "lengths"),
    [
        ("....", "0000", "0000", ["00", "01", "02", "03", "04"], [], [], []),
        (".t..", "0100", "0000", ["00", "01", "10", "11", "12"], [], [3], [2]),
        (".u..", "0000", "0100", ["00", "01", "10", "11", "12"], ["02"], [3], [2]),
        (".b..", "0100", "0100", ["00", "01", "10", "11", "12"], [], [3], [2]),
        ("...t", "0001", "0000", ["00", "01", "02", "03", "04"], [], [10], [4]),
        ("...u", "0000", "0001", ["00", "01", "02", "03", "04"], ["04"], [10], [4]),
        ("...b", "0001", "0001", ["00", "01", "02", "03", "04"], [], [10], [4]),
        (
            "tutu",
            "1010",
            "0101",
            ["00", "10", "20", "30", "31"],
            ["11", "31"],
            [1, 2, 3, 4],
            [1] * 4,
        ),
        ("u..u", "0000", "1001", ["00", "10", "11", "12", "13"], ["01", "13"], [1, 9], [1, 3]),
    ],
)
def test_ends_inside_and_at_the_last_step(
    script: str,
    terminated: str,
    truncated: str,
    observation: list[str],
    final: list[str],
    returns: list[float],
    lengths: list[int],
    make_task: MakeTask,
    load_discrete: LoadPolicy,
) -> None:
    task = make_task(env_kwargs={"script": script}, steps=4)
    env = make_environment(task.env)
    trajectory = sample_fragment(task, [env], load_discrete(2, 2))

    def rows(texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([[int(c) for c in text] for text in texts], np.float32).reshape(-1, 2)

    np.testing.assert_array_equal(trajectory.observation[:, 0], rows(observation))
    np.testing.assert_array_equal(trajectory.final_observation, rows(final))
    assert "".join(str(int(flag)) for flag in trajectory.terminated[:, 0]) == terminated
    assert "".join(str(int(flag)) for flag in trajectory.truncated[:, 0]) == truncated
    np.testing.assert_array_equal(trajectory.reward[:, 0], [1, 2, 3, 4])
    np.testing.assert_array_equal(trajectory.episode_returns, returns)
    np.testing.assert_array_equal(trajectory.episode_lengths, lengths)
    ends_inside = sum(event != "." for event in script[:-1])
    assert env.unwrapped.num_resets == 1 + ends_inside  # type: ignore[attr-defined]
    decoded = decode_trajectory(encode_trajectory(trajectory), environment=describe(task.env))
    assert decoded.num_steps == 4


def test_environments_side_by_side_keep_their_columns(
    make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    tasks = [make_task(env_kwargs={"script": s}) for s in ("..u.", "u.t.", "....")]
    envs = [make_environment(task.env) for task in tasks]
    task = make_task(steps=12, num_envs=3)
    trajectory = sample_fragment(task, envs, load_discrete(2, 2))
    assert trajectory.reward.shape == (4, 3)
    np.testing.assert_array_equal(trajectory.truncated.nonzero(), [[0, 2], [1, 0]])
    np.testing.assert_array_equal(trajectory.terminated.nonzero(), [[2], [1]])
    np.testing.assert_array_equal(trajectory.final_observation, [[0, 1], [0, 3]])  # (t, b) order
    np.testing.assert_array_equal(trajectory.episode_lengths, [1, 3, 2])
    np.testing.assert_array_equal(trajectory.observation[-1], [[1, 1], [2, 1], [0, 4]])


def test_environments_side_by_side_start_differently(
    make_task: MakeTask, load_continuous: LoadPolicy
) -> None:
    task = make_task("Pendulum-v1", steps=30, num_envs=3)
    envs = [make_environment(task.env) for _ in range(3)]
    trajectory = sample_fragment(task, envs, load_continuous(3, 1))
    starts = trajectory.observation[0]
    assert len(np.unique(starts, axis=0)) == 3
    assert env_seed(task.seed, 0) == task.seed


@pytest.mark.parametrize("env_id", ["Hopper-v5", "Pendulum-v1"])
def test_the_same_task_gives_the_same_bytes_whatever_ran_before(
    env_id: str, make_task: MakeTask, load_continuous: LoadPolicy
) -> None:
    task = make_task(env_id, steps=300, num_envs=2)
    envs = [make_environment(task.env) for _ in range(2)]
    assert envs[0].observation_space.shape is not None
    assert envs[0].action_space.shape is not None
    sizes = envs[0].observation_space.shape[0], envs[0].action_space.shape[0]
    policy = load_continuous(*sizes)
    fresh = encode_trajectory(sample_fragment(task, envs, policy))
    other = sample_fragment(task.model_copy(update={"seed": 12}), envs, policy)
    assert encode_trajectory(other) != fresh
    again = sample_fragment(task.model_copy(update={"attempt": 1}), envs[::-1], policy)
    assert encode_trajectory(again) == fresh


def test_the_action_noise_is_not_the_environments_own_random_stream(
    make_task: MakeTask,
) -> None:
    env = gymnasium.make("Pendulum-v1")
    env.reset(seed=11)
    same_stream = np.random.default_rng(11).bit_generator.state["state"]["inc"]
    assert env.unwrapped.np_random.bit_generator.state["state"]["inc"] == same_stream
    assert noise_generator(11).bit_generator.state["state"]["inc"] != same_stream


def test_discrete_actions_start_where_the_environment_counts_from(
    make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    task = make_task(env_kwargs={"first_action": 5}, steps=50)
    env = make_environment(task.env)
    trajectory = sample_fragment(task, [env], load_discrete(2, 2))
    assert set(trajectory.action.ravel().tolist()) == {0, 1}
    handed = env.unwrapped.actions  # type: ignore[attr-defined]
    np.testing.assert_array_equal(handed, trajectory.action[:, 0] + 5)
    assert {type(action) for action in handed} == {np.int64}  # as of `action_space.sample()`


def test_several_choices_start_where_the_environment_counts_each_from(
    make_task: MakeTask, discrete_policy: MakePolicy
) -> None:
    arrays, metadata = discrete_policy(2, 2 + 3)
    metadata |= {"distribution": "multi_categorical", "num_choices": "2,3"}
    env: Any = ScriptedEnv()
    env.action_space = MultiDiscrete([2, 3], start=[5, 7])
    trajectory = sample_fragment(make_task(steps=50), [env], load_policy(arrays, metadata))
    assert [set(column.tolist()) for column in trajectory.action[:, 0].T] == [{0, 1}, {0, 1, 2}]
    np.testing.assert_array_equal(env.actions, trajectory.action[:, 0] + [5, 7])
    env.action_space = MultiDiscrete([3, 2])
    with pytest.raises(RolloutError, match="but the policy takes"):
        sample_fragment(make_task(steps=50), [env], load_policy(arrays, metadata))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("r", "Scripted-v0: reward is not finite at step 1, as in 10 episodes of this"),
        ("i", "Scripted-v0: reward is not finite at step 1"),
        ("o", "Scripted-v0: observation is not finite at step 1"),
        ("..ro", "Scripted-v0: reward is not finite at step 3"),
        (".o.r", "Scripted-v0: observation is not finite at step 2"),
        ("..!", r"Scripted-v0 failed at step 3: OSError\('the simulator fell over'\)"),
        (
            ".s",
            r"Scripted-v0 failed at step 2: .*observation has shape \(1,\) .* Box\(-inf, inf, \(2,",
        ),
    ],
)
def test_an_environment_that_goes_on_failing_is_given_up_and_named(
    script: str, message: str, make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    policy = load_discrete(2, 2)
    task = make_task(env_kwargs={"script": script})
    with pytest.raises(RolloutError, match=message):
        sample_fragment(task, [make_environment(task.env)], policy)
    evaluation = make_task(env_kwargs={"script": script}, mode="evaluate")
    with pytest.raises(RolloutError, match="Scripted-v0"):
        evaluate_episode(evaluation, make_environment(task.env), policy)


def test_what_an_environment_raises_is_told_with_its_own_file_and_line(
    make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    lines, first = inspect.getsourcelines(ScriptedEnv.step)
    line = first + next(at for at, text in enumerate(lines) if "raise OSError" in text)
    task = make_task(env_kwargs={"script": "..!"})
    evaluation = make_task(env_kwargs={"script": "..!"}, mode="evaluate")
    policy = load_discrete(2, 2)
    for roll_out in (
        lambda: sample_fragment(task, [make_environment(task.env)], policy),
        lambda: evaluate_episode(evaluation, make_environment(task.env), policy),
    ):
        with pytest.raises(RolloutError) as caught:
            roll_out()
        assert str(caught.value).splitlines() == [
            "Scripted-v0 failed at step 3: OSError('the simulator fell over')",
            f'  File "{inspect.getfile(ScriptedEnv)}", line {line}, in step',
            '    raise OSError("the simulator fell over")',
        ]


@pytest.mark.parametrize("after", [0, 3])
def test_a_reset_that_raises_is_named(
    after: int, make_task: MakeTask, load_discrete: LoadPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task(env_kwargs={"script": "..t"})
    env = make_environment(task.env)

    def reset(self: ScriptedEnv, **kwargs: Any) -> Any:
        if self.total == after:
            self.script = "!"
            self.step(np.int64(0))
        return self._observation(), {}

    monkeypatch.setattr(ScriptedEnv, "reset", reset)
    with pytest.raises(RolloutError, match=r"^Scripted-v0 failed in reset: OSError"):
        sample_fragment(task, [env], load_discrete(2, 2))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("..r", "reward is not finite at step 3, as in 10 episodes before"),
        (".o", "observation is not finite at step 2, as in 10 episodes before"),
        (".r.!", r"failed at step 2: OSError\('the simulator fell over'\)"),
    ],
)
def test_an_evaluation_that_goes_on_failing_says_where(
    script: str, message: str, make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    task = make_task(env_kwargs={"script": script}, mode="evaluate")
    with pytest.raises(RolloutError, match=f"Scripted-v0:? {message}"):
        evaluate_episode(task, make_environment(task.env), load_discrete(2, 2))


def test_what_fails_while_the_fragments_last_steps_are_rolled_out_again_is_named(
    make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    task = make_task(env_kwargs={"script": "...r.!.."}, steps=4)
    with pytest.raises(RolloutError, match=r"Scripted-v0 failed at step \d: OSError"):
        sample_fragment(task, [make_environment(task.env)], load_discrete(2, 2))


@pytest.mark.parametrize(("size", "choices"), [(3, 2), (2, 3)])
def test_a_policy_of_another_shape_is_refused(
    size: int, choices: int, make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    task = make_task()
    env = make_environment(task.env)
    for run in (
        lambda policy: sample_fragment(task, [env], policy),
        lambda policy: evaluate_episode(task, env, policy),
    ):
        with pytest.raises(RolloutError, match="but the policy takes"):
            run(load_discrete(size, choices))


def test_a_continuous_policy_is_refused_where_actions_are_discrete(
    make_task: MakeTask, load_continuous: LoadPolicy
) -> None:
    task = make_task()
    with pytest.raises(RolloutError, match="but the policy takes"):
        sample_fragment(task, [make_environment(task.env)], load_continuous(2, 2))


@pytest.mark.parametrize(("size", "actions"), [(3, 2), (2, 1)])
def test_a_continuous_policy_of_another_shape_is_refused(
    size: int, actions: int, make_task: MakeTask, load_continuous: LoadPolicy
) -> None:
    task = make_task("Pendulum-v1")
    with pytest.raises(RolloutError, match="but the policy takes"):
        sample_fragment(task, [make_environment(task.env)], load_continuous(size, actions))


def test_there_must_be_as_many_environments_as_the_task_names(
    make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    task = make_task(steps=8, num_envs=2)
    for num_given in (1, 3):
        envs = [make_environment(task.env) for _ in range(num_given)]
        with pytest.raises(RolloutError, match=f"num_envs = 2; {num_given} environments"):
            sample_fragment(task, envs, load_discrete(2, 2))


def test_steps_must_be_shared_equally(make_task: MakeTask, load_discrete: LoadPolicy) -> None:
    task = make_task(steps=7, num_envs=2)
    envs = [make_environment(task.env) for _ in range(2)]
    with pytest.raises(RolloutError, match="7 steps cannot be shared by num_envs = 2"):
        sample_fragment(task, envs, load_discrete(2, 2))


@pytest.mark.parametrize(("env_id", "size", "actions", "discrete", "to_env"), ENVIRONMENTS)
def test_an_evaluation_is_what_a_plain_loop_sees(
    env_id: str,
    size: int,
    actions: int,
    discrete: bool,
    to_env: ToEnv,
    make_task: MakeTask,
    load_discrete: LoadPolicy,
    load_continuous: LoadPolicy,
) -> None:
    task = make_task(env_id, mode="evaluate", steps=1)
    policy = (load_discrete if discrete else load_continuous)(size, actions)
    env = make_environment(task.env)
    evaluate_episode(task.model_copy(update={"seed": 99}), env, policy)
    episode = evaluate_episode(task, env, policy)
    env.close()
    total, length, ended = 0.0, 0, False
    with gymnasium.make(env_id) as plain:
        observation, _ = plain.reset(seed=task.seed)
        while not ended:
            action = policy.mode(np.array(observation, np.float32))
            observation, reward, terminated, truncated, _ = plain.step(to_env(action))
            total, length, ended = total + float(reward), length + 1, terminated or truncated
    assert episode.length == length
    assert episode.episode_return == pytest.approx(total, rel=1e-4)
    assert (episode.job_id, episode.round, episode.actor_index) == ("job-1", 3, 5)


def test_an_evaluation_without_a_time_limit_is_cut(
    make_task: MakeTask, load_discrete: LoadPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(play, "MAX_EVALUATION_STEPS", 20)
    task = make_task(mode="evaluate")
    episode = evaluate_episode(task, make_environment(task.env), load_discrete(2, 2))
    assert episode.length == 20
