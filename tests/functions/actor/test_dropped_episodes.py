"""Episodes in which something is not finite: dropped, counted, and sampled again."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest
from gymnasium.envs.classic_control import PendulumEnv
from numpy.typing import NDArray

from functions.actor.errors import RolloutError
from functions.actor.rollout import evaluate_episode, sample_fragment
from shared.contracts.rollouts import RolloutTask
from shared.environments.building import make_environment
from shared.environments.describing import describe
from shared.policy.numpy_policy import NumpyPolicy, load_policy
from shared.trajectory.trajectory import Trajectory, decode_trajectory, encode_trajectory

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
    "...x.x.....t........",  # broken again, and sooner
    "...........r...........r............",  # broken again where the fragment ends
]


Answer = tuple[Any, Any, Any, Any, Any]


@dataclass
class Pendulum:
    """How every pendulum of a test behaves."""

    num_steps: int = 0
    strict: bool = False  # raises at an action that is not finite
    answer: Callable[[int, Answer], Answer] = lambda n, answer: answer
    """What step number `n`, from 1, gives instead."""


@pytest.fixture
def pendulum(monkeypatch: pytest.MonkeyPatch) -> Pendulum:
    behaviour = Pendulum()
    step = cast("Any", PendulumEnv.step)

    def altered(self: PendulumEnv, action: Any) -> Answer:
        behaviour.num_steps += 1
        if behaviour.strict and not np.isfinite(action).all():
            raise ValueError("no such torque")
        return behaviour.answer(behaviour.num_steps, step(self, action))

    monkeypatch.setattr(PendulumEnv, "step", altered)
    return behaviour


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
    # Two dropped for each that is finished: after 9 of those the 20th is one too many.
    with pytest.raises(RolloutError, match="in 19 episodes of this rollout"):
        rolled_out(make_task, policy, "xx.t", num_steps=60)


def test_every_episode_that_is_rolled_out_again_has_noise_of_its_own(
    make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    task = make_task(env_kwargs={"script": ("." * 19 + "x") * 3 + "."}, steps=20)
    env = make_environment(task.env)
    assert sample_fragment(task, [env], load_discrete(2, 2)).dropped_episodes == 3
    taken = np.reshape(env.unwrapped.actions, (4, 20))  # type: ignore[attr-defined]
    assert len(np.unique(taken, axis=0)) == 4


def test_the_noise_after_a_drop_follows_from_the_tasks_seed(
    make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    script = "." * 19 + "x" + "." * 20  # none of the first episode's actions is left
    actions = []
    for seed in (11, 12):
        task = make_task(env_kwargs={"script": script}, steps=20, seed=seed)
        trajectory = sample_fragment(task, [make_environment(task.env)], load_discrete(2, 2))
        assert trajectory.dropped_episodes == 1
        actions.append(trajectory.action[:, 0])
    assert not np.array_equal(actions[0], actions[1])


def test_a_drop_is_logged_with_its_environment_and_reason(
    make_task: MakeTask, load_discrete: LoadPolicy, caplog: pytest.LogCaptureFixture
) -> None:
    scripts = ("." * 20, "..rt" + "." * 20, ".o.t" + "." * 20)
    rolled_out(make_task, load_discrete(2, 2), *scripts)
    records = [vars(r) for r in caplog.records if r.message == "episode dropped"]
    assert [(record["env_id"], record["env_index"], record["why"]) for record in records] == [
        ("Scripted-v0", 1, "reward is not finite at step 3"),
        ("Scripted-v0", 2, "observation is not finite at step 2"),
    ]


def test_an_evaluation_drops_what_is_broken_and_plays_another(
    make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    task = make_task(env_kwargs={"script": ".r.o...t"}, mode="evaluate")
    episode = evaluate_episode(task, make_environment(task.env), load_discrete(2, 2))
    assert episode.dropped_episodes == 2
    assert (episode.length, episode.episode_return) == (4, 5 + 6 + 7 + 8)


@pytest.mark.parametrize("broken", [np.full(3, 1e200), [1.0, 0.0, np.inf]], ids=["float32", "one"])
def test_an_evaluation_drops_an_observation_that_a_fragment_would_drop(
    broken: Any, make_task: MakeTask, continuous_policy: MakePolicy, pendulum: Pendulum
) -> None:
    pendulum.answer = lambda n, answer: (np.asarray(broken) if n == 5 else answer[0], *answer[1:])
    task = make_task("Pendulum-v1", mode="evaluate")
    policy = load_policy(*continuous_policy(3, 1))
    episode = evaluate_episode(task, make_environment(task.env), policy)
    assert (episode.dropped_episodes, episode.length, pendulum.num_steps) == (1, 200, 5 + 200)


def test_a_policy_that_gives_no_numbers_is_refused_where_the_environment_does_not_mind(
    make_task: MakeTask, discrete_policy: MakePolicy, continuous_policy: MakePolicy
) -> None:
    arrays, metadata = discrete_policy(2, 2)
    arrays["policy.0.bias"] = np.full(16, 9, np.float32)  # all hidden units saturate,
    arrays["policy.1.weight"] = np.full((2, 16), 3e38, np.float32)  # and the logits overflow
    task = make_task()
    with pytest.raises(RolloutError, match=r"log_prob is not finite at step 1 \(policy diverged"):
        sample_fragment(task, [make_environment(task.env)], load_policy(arrays, metadata))
    arrays, metadata = continuous_policy(3, 1)
    arrays["policy.0.bias"] = np.full(16, 9, np.float32)
    arrays["policy.1.weight"] = np.zeros((2, 16), np.float32)
    arrays["policy.1.weight"][0] = 3e38  # the mean alone: its action is clipped to the bound
    task = make_task("Pendulum-v1")
    with pytest.raises(RolloutError, match=r"action is not finite at step 1 \(policy diverged"):
        sample_fragment(task, [make_environment(task.env)], load_policy(arrays, metadata))


def test_the_step_at_which_a_policy_diverged_counts_from_the_fragments_start(
    make_task: MakeTask, continuous_policy: MakePolicy, pendulum: Pendulum
) -> None:
    def far_away(n: int, answer: Answer) -> Answer:
        observation = np.full(3, 3e38, np.float32) if n == 6 else answer[0]
        return observation, np.nan if n == 8 else answer[1], False, n == 3, {}

    pendulum.answer = far_away
    arrays, metadata = continuous_policy(3, 1)
    arrays["policy.0.weight"] = np.full((16, 3), 1e-30, np.float32)
    arrays["policy.1.weight"] = np.zeros((2, 16), np.float32)
    arrays["policy.1.weight"][0] = 3e38  # the mean overflows only from very far away
    task = make_task("Pendulum-v1", steps=8)
    with pytest.raises(RolloutError, match=r"action is not finite at step 7 \(policy diverged"):
        sample_fragment(task, [make_environment(task.env)], load_policy(arrays, metadata))


def test_a_policy_that_diverged_in_one_environment_is_blamed_for_what_that_one_raises(
    make_task: MakeTask, continuous_policy: MakePolicy, pendulum: Pendulum
) -> None:
    pendulum.strict = True
    pendulum.answer = lambda n, answer: (
        np.full(3, 3e38, np.float32) if n == 4 else answer[0],
        *answer[1:],
    )
    arrays, metadata = continuous_policy(3, 1)
    arrays["policy.0.weight"] = np.full((16, 3), 1e-30, np.float32)
    arrays["policy.1.weight"] = np.full((2, 16), 3e38, np.float32)  # overflow from far away only
    task = make_task("Pendulum-v1", steps=32, num_envs=2)
    envs = [make_environment(task.env) for _ in range(2)]
    with pytest.raises(RolloutError, match=r"action is not finite at step 3 \(policy diverged"):
        sample_fragment(task, envs, load_policy(arrays, metadata))


def test_an_environment_that_raises_is_named_though_another_one_is_broken(
    make_task: MakeTask, continuous_policy: MakePolicy, pendulum: Pendulum
) -> None:
    def fails(n: int, answer: Answer) -> Answer:
        if n == 6:  # the third of the second environment
            raise OSError("the simulator fell over")
        return (np.full(3, np.nan) if n == 3 else answer[0], *answer[1:])

    pendulum.answer = fails
    task = make_task("Pendulum-v1", steps=32, num_envs=2)
    envs = [make_environment(task.env) for _ in range(2)]
    with pytest.raises(RolloutError, match=r"Pendulum-v1 failed at step 3: OSError"):
        sample_fragment(task, envs, load_policy(*continuous_policy(3, 1)))


@pytest.mark.parametrize("env_raises", [False, True])
def test_a_policy_that_has_diverged_is_blamed_and_not_the_environment(
    env_raises: bool,
    make_task: MakeTask,
    continuous_policy: MakePolicy,
    pendulum: Pendulum,
) -> None:
    arrays, metadata = continuous_policy(3, 1)
    arrays["policy.0.bias"] = np.full(16, 9, np.float32)  # all hidden units saturate,
    arrays["policy.1.weight"] = np.full((2, 16), 3e38, np.float32)  # and the mean overflows
    policy = load_policy(arrays, metadata)
    pendulum.strict = env_raises
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
    pendulum: Pendulum,
) -> None:
    def blows_up(n: int, answer: Answer) -> Answer:
        observation, reward, *rest = answer
        if n == 9:  # the fifth of the first environment
            observation, reward = (
                (np.full(3, np.nan), reward) if breaks == "observation" else (observation, np.nan)
            )
        return (observation, reward, *rest)

    pendulum.answer = blows_up
    task = make_task("Pendulum-v1", steps=32, num_envs=2)
    policy = load_policy(*continuous_policy(3, 1))
    trajectory = sample_fragment(task, [make_environment(task.env) for _ in range(2)], policy)
    assert trajectory.dropped_episodes == 1
    assert pendulum.num_steps == 32 + 16  # one environment's were taken again
    expected = policy.log_prob(trajectory.observation[:-1], trajectory.action)
    np.testing.assert_allclose(trajectory.log_prob, expected, atol=1e-4)
    assert encode_trajectory(trajectory)
