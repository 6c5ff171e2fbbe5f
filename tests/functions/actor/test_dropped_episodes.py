"""Episodes in which something is not finite: dropped, counted, and rolled out again."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest
from gymnasium.envs.classic_control import PendulumEnv
from numpy.typing import NDArray

from functions.actor.errors import RolloutError
from functions.actor.rollout import evaluate_episode, sample_fragment
from shared.contracts import RolloutTask
from shared.envs import describe, make_environment
from shared.policy import NumpyPolicy, load_policy
from shared.trajectory import Trajectory, decode_trajectory, encode_trajectory

MakeTask = Callable[..., RolloutTask]
LoadPolicy = Callable[[int, int], NumpyPolicy]
MakePolicy = Callable[[int, int], tuple[dict[str, NDArray[np.generic]], dict[str, str]]]

NUM_STEPS = 12
SCRIPTS = [
    ".t.r....t...........",  # broken, then a whole one
    "r....t.............",  # from the first step
    "...t...t..o.........",  # found out only when the fragment ends
    "..t.ru..t...........",  # a truncated one: its final observation goes with it
    "..o!...............",  # what raises because it was broken before
    ".rt.ot.rb..t........",  # several in a row
    "..t...t....i........",  # the fragment's last step
    ".....................",
    ".t..x...t...........",  # with its very last step, as a simulator that blows up ends one
    ".u..y....u..........",
    "..t.ru....t.........",  # what truncated it leaves no trace where the next goes on
    "..t...t....y........",
]


@dataclass
class Kept:
    """What a plain loop keeps that drops every broken episode."""

    steps: list[tuple[float, bool, bool]] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    dropped: int = 0


def plainly(script: str, num_steps: int) -> Kept:
    """Play the script episode by episode, as its description says, without Gymnasium."""
    kept, total = Kept(), 0
    while len(kept.steps) < num_steps:
        episode: list[tuple[float, bool, bool]] = []
        broken = ended = False
        while not ended and len(kept.steps) + len(episode) < num_steps:
            event = script[total % len(script)]
            total += 1
            broken |= event in "rioxy"
            episode.append((float(total), event in "tbx", event in "uby"))
            ended = event in "tubxy!"
        if broken:
            kept.dropped += 1
            continue
        kept.steps += episode
        if ended:
            kept.returns.append(sum(reward for reward, _, _ in episode))
    return kept


def rolled_out(
    make_task: MakeTask, policy: NumpyPolicy, *scripts: str, num_steps: int = NUM_STEPS
) -> Trajectory:
    tasks = [make_task(env_kwargs={"script": script}) for script in scripts]
    envs = [make_environment(task.env) for task in tasks]
    task = make_task(steps=num_steps * len(scripts), num_envs=len(scripts))
    return sample_fragment(task, envs, policy)


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_is_kept_is_what_a_plain_loop_keeps(
    script: str, make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    trajectory = rolled_out(make_task, load_discrete(2, 2), script)
    kept = plainly(script, NUM_STEPS)
    steps = zip(
        trajectory.reward[:, 0].tolist(),
        trajectory.terminated[:, 0].tolist(),
        trajectory.truncated[:, 0].tolist(),
        strict=True,
    )
    assert list(steps) == kept.steps
    assert trajectory.episode_returns.tolist() == kept.returns
    assert trajectory.dropped_episodes == kept.dropped
    data = encode_trajectory(trajectory)
    decoded = decode_trajectory(data, environment=describe(make_task().env))
    assert decoded.dropped_episodes == kept.dropped


def test_environments_side_by_side_drop_their_own_episodes_only(
    make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    policy = load_discrete(2, 2)
    together = rolled_out(make_task, policy, *SCRIPTS)
    alone = [rolled_out(make_task, policy, script) for script in SCRIPTS]
    assert together.dropped_episodes == sum(one.dropped_episodes for one in alone)
    for b, one in enumerate(alone):
        np.testing.assert_array_equal(together.reward[:, b], one.reward[:, 0])
        np.testing.assert_array_equal(together.observation[:, b], one.observation[:, 0])
        np.testing.assert_array_equal(together.terminated[:, b], one.terminated[:, 0])
    finals: dict[tuple[int, int], NDArray[Any]] = {}
    for b, one in enumerate(alone):
        cut = np.flatnonzero(one.truncated[:, 0] & ~one.terminated[:, 0])
        finals |= {(int(t), b): row for t, row in zip(cut, one.final_observation, strict=True)}
    in_order = [finals[place] for place in sorted(finals)]
    np.testing.assert_array_equal(together.final_observation, in_order)


def test_actions_rolled_out_again_are_the_policys_and_those_taken(
    make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    policy = load_discrete(2, 2)
    task = make_task(env_kwargs={"script": "......r...t" + "." * 30}, steps=24, num_envs=2)
    envs = [make_environment(task.env) for _ in range(2)]
    trajectory = sample_fragment(task, envs, policy)
    assert trajectory.dropped_episodes == 2
    expected = policy.log_prob(trajectory.observation[:-1], trajectory.action)
    np.testing.assert_allclose(trajectory.log_prob, expected, atol=1e-5)
    for b, env in enumerate(envs):
        taken = env.unwrapped.actions  # type: ignore[attr-defined]
        assert len(taken) > 12
        np.testing.assert_array_equal(taken[-12:], trajectory.action[:, b])
        assert list(taken[:11]) != list(taken[11:22])  # drawn anew, not the same again


def test_a_repeated_rollout_drops_and_repeats_the_same(
    make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    first, second = (rolled_out(make_task, load_discrete(2, 2), *SCRIPTS) for _ in range(2))
    assert first.dropped_episodes > 0
    assert encode_trajectory(first) == encode_trajectory(second)


def test_more_may_be_dropped_the_more_are_finished(
    make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    policy = load_discrete(2, 2)
    expected = plainly("trt", 60).dropped
    assert rolled_out(make_task, policy, "trt", num_steps=60).dropped_episodes == expected > 50
    with pytest.raises(RolloutError, match="in 10 episodes of this rollout"):
        rolled_out(make_task, policy, "...r", num_steps=60)


def test_an_evaluation_drops_what_is_broken_and_plays_another(
    make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    task = make_task(env_kwargs={"script": ".r.o...t"}, mode="evaluate")
    episode = evaluate_episode(task, make_environment(task.env), load_discrete(2, 2))
    assert episode.dropped_episodes == 2
    assert (episode.length, episode.episode_return) == (4, 5 + 6 + 7 + 8)


def test_an_evaluation_drops_what_is_beyond_float32_as_a_fragment_does(
    make_task: MakeTask, continuous_policy: MakePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = cast("Any", PendulumEnv.step)
    num_steps = 0

    def blows_up(self: PendulumEnv, action: Any) -> Any:
        nonlocal num_steps
        num_steps += 1
        observation, *rest = step(self, action)
        return (np.full(3, 1e200) if num_steps == 5 else observation, *rest)

    monkeypatch.setattr(PendulumEnv, "step", blows_up)
    task = make_task("Pendulum-v1", mode="evaluate")
    policy = load_policy(*continuous_policy(3, 1))
    episode = evaluate_episode(task, make_environment(task.env), policy)
    assert (episode.dropped_episodes, episode.length) == (1, 200)


@pytest.mark.parametrize("env_raises", [False, True])
def test_a_policy_that_has_diverged_is_blamed_and_not_the_environment(
    env_raises: bool,
    make_task: MakeTask,
    continuous_policy: MakePolicy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arrays, metadata = continuous_policy(3, 1)
    arrays["policy.0.bias"] = np.full(16, 9, np.float32)  # all hidden units saturate,
    arrays["policy.1.weight"] = np.full((2, 16), 3e38, np.float32)  # and the mean overflows
    policy = load_policy(arrays, metadata)
    step = cast("Any", PendulumEnv.step)

    def strict(self: PendulumEnv, action: Any) -> Any:
        if not np.isfinite(action).all():
            raise ValueError("no such torque")
        return step(self, action)

    if env_raises:
        monkeypatch.setattr(PendulumEnv, "step", strict)
    task = make_task("Pendulum-v1", steps=32)
    env = make_environment(task.env)
    message = r"Pendulum-v1: action is not finite at step \d+ \(policy diverged\)"
    with pytest.raises(RolloutError, match=message):
        sample_fragment(task, [env], policy)
    with pytest.raises(RolloutError, match=message):
        evaluate_episode(task, env, policy)
    env.close()


@pytest.mark.parametrize("breaks", ["observation", "reward"])
def test_an_environment_that_breaks_is_not_excused_by_what_the_policy_makes_of_it(
    breaks: str,
    make_task: MakeTask,
    continuous_policy: MakePolicy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = cast("Any", PendulumEnv.step)
    num_steps = 0

    def blows_up(self: PendulumEnv, action: Any) -> Any:
        nonlocal num_steps
        num_steps += 1
        observation, reward, *rest = step(self, action)
        if num_steps == 9:  # the fifth of the first environment
            observation, reward = (
                (np.full(3, np.nan), reward) if breaks == "observation" else (observation, np.nan)
            )
        return (observation, reward, *rest)

    monkeypatch.setattr(PendulumEnv, "step", blows_up)
    task = make_task("Pendulum-v1", steps=32, num_envs=2)
    policy = load_policy(*continuous_policy(3, 1))
    trajectory = sample_fragment(task, [make_environment(task.env) for _ in range(2)], policy)
    assert trajectory.dropped_episodes == 1
    assert num_steps == 32 + 16  # one environment's were taken again
    expected = policy.log_prob(trajectory.observation[:-1], trajectory.action)
    np.testing.assert_allclose(trajectory.log_prob, expected, atol=1e-4)
    assert encode_trajectory(trajectory)
