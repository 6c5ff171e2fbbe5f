"""Rollouts of parallel environments: a column for each agent, and every step taken together."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import registry
from gymnasium.spaces import Box, Discrete, Space

from functions.actor.errors import RolloutError
from functions.actor.rollout import evaluate_episode, sample_fragment
from functions.actor.warm import WarmEnvironments
from learning.networks.building import build_network, policy_payload
from shared.contracts.environment_ref import EnvironmentRef, WrapperRef
from shared.contracts.rollouts import RolloutTask
from shared.environments.building import make_environment
from shared.environments.describing import describe
from shared.environments.spaces import UnsupportedEnvironment
from shared.hyperparameters.ppo import PAPER
from shared.policy.numpy_policy import NumpyPolicy, load_policy
from shared.trajectory.trajectory import Trajectory

NAMES = ["ann", "bob", "cid"]
LENGTH, DEATH = 5, 3
"""Steps of an episode, and of `cid` in it."""


class Parallel:
    """A parallel environment as PettingZoo has it, without PettingZoo.

    An agent sees its number, the steps so far and the sum of all actions before; it earns its own
    action, and a tenth of the others'. Its info has a mask of actions while it is alive.

    Args:
        box: Whether actions are real numbers.
        uneven: Whether agents differ in their observations.
        broken: Whether `bob` observes NaN.
        keeps: Whether it leaves agents that have ended in its list, as some games do.
        cuts: Whether `cid` is truncated where it would die.
    """

    metadata: dict[str, Any] = {}

    def __init__(
        self,
        *,
        box: bool = False,
        uneven: bool = False,
        broken: bool = False,
        keeps: bool = False,
        cuts: bool = False,
    ) -> None:
        self.possible_agents = [*NAMES]
        self.agents: list[str] = []
        self._uneven, self._broken, self._keeps, self._cuts = uneven, broken, keeps, cuts
        self._action: Space[Any] = Box(-1.0, 1.0, (1, 1)) if box else Discrete(4)
        self._steps, self._sum, self._begin = 0, 0.0, 0.0

    def observation_space(self, agent: str) -> Box:
        return Box(-np.inf, np.inf, (3 + (self._uneven and agent == "bob"),))

    def action_space(self, agent: str) -> Space[Any]:
        return self._action

    def _seen(self, agents: list[str]) -> dict[str, Any]:
        observations = {
            name: np.array([NAMES.index(name), self._steps, self._begin + self._sum], np.float32)
            for name in agents
        }
        if self._broken:
            observations["bob"] = observations["bob"] * np.nan
        return observations

    def reset(self, *, seed: int | None, options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents = [*NAMES]
        if seed is not None:
            self._begin = seed % 100
        self._steps, self._sum = 0, 0.0
        return self._seen(self.agents), self._masks(self.agents)

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        assert actions.keys() == set(self.agents)
        assert all(self._action.contains(action) for action in actions.values())
        numbers = {name: float(np.sum(action)) for name, action in actions.items()}
        self._steps, self._sum = self._steps + 1, sum(numbers.values())
        rewards = {name: own + 0.1 * (self._sum - own) for name, own in numbers.items()}
        acted, over = [*self.agents], self._steps == LENGTH
        dies = {name: name == "cid" and self._steps == DEATH for name in acted}
        for name in acted:  # in place, as PettingZoo's own wrapper does
            if not self._keeps and (over or dies[name]):
                self.agents.remove(name)
        return (
            self._seen(acted),
            rewards,
            {name: dies[name] and not self._cuts for name in acted},
            {name: over or (self._cuts and dies[name]) for name in acted},
            self._masks(self.agents),
        )

    def _masks(self, agents: list[str]) -> dict[str, Any]:
        return {name: {"action_mask": np.array([0, 1, 1, 0], np.int8)} for name in agents}

    def close(self) -> None:
        pass


class Turns(Parallel):
    """PettingZoo's other kind."""

    def agent_iter(self) -> None:
        """Says whose turn it is."""


@pytest.fixture(autouse=True, scope="module")
def _registered() -> Iterator[None]:
    before = {*registry}
    here = f"{__name__}:"
    gymnasium.register("Parallel-v0", entry_point=f"{here}Parallel")
    gymnasium.register("Short-v0", entry_point=f"{here}Parallel", max_episode_steps=2)
    gymnasium.register("Turns-v0", entry_point=f"{here}Turns")
    gymnasium.register("List-v0", entry_point="builtins:list")
    yield
    for name in {*registry} - before:
        del registry[name]


def ref(env_id: str = "Parallel-v0", **kwargs: Any) -> EnvironmentRef:
    return EnvironmentRef(env_id=env_id, env_kwargs=kwargs)


def policy_of(env: EnvironmentRef) -> NumpyPolicy:
    return load_policy(*policy_payload(build_network(describe(env), PAPER, seed=0)))


def task(env: EnvironmentRef, **changes: Any) -> RolloutTask:
    fields = {
        "mode": "sample",
        "job_id": "job",
        "round": 0,
        "attempt": 0,
        "actor_index": 0,
        "policy_version": 0,
        "env": env,
        "steps": 33,
        "num_envs": 3,
        "seed": 7,
        **changes,
    }
    return RolloutTask.model_validate(fields)


def sampled(env: EnvironmentRef, warm: WarmEnvironments, **changes: Any) -> Trajectory:
    job = task(env, **changes)
    envs = [agent for each in warm.take(job, ()) for agent in each.agents]
    return sample_fragment(job, envs, policy_of(env))


@pytest.mark.parametrize("box", [False, True])
def test_rewards_and_observations_are_those_of_all_actions_together(box: bool) -> None:
    env = ref(box=box)
    trajectory = sampled(env, WarmEnvironments(most=1, watchdog=None))
    alone = Parallel(box=box)
    seen, _ = alone.reset(seed=7, options=None)
    for t in range(11):
        for b, name in enumerate(NAMES):
            expected = seen[name] if name in alone.agents else np.zeros(3)
            np.testing.assert_array_equal(trajectory.observation[t, b], expected)
        taken = np.asarray(trajectory.action[t])
        acts = np.clip(taken, -1, 1).reshape(3, 1, 1).astype(np.float32) if box else taken
        seen, rewards, *_ = alone.step(
            {name: acts[b] for b, name in enumerate(NAMES) if name in alone.agents}
        )
        np.testing.assert_allclose(
            trajectory.reward[t], [rewards.get(name, 0.0) for name in NAMES], rtol=1e-6
        )
        if not alone.agents:
            seen, _ = alone.reset(seed=None, options=None)


def test_an_episode_ends_for_all_and_the_dead_see_zeros_until_then() -> None:
    trajectory = sampled(ref(), WarmEnvironments(most=1, watchdog=None))
    ends = np.zeros((11, 3), bool)
    ends[[LENGTH - 1, 2 * LENGTH - 1]] = True
    np.testing.assert_array_equal(trajectory.terminated | trajectory.truncated, ends)
    np.testing.assert_array_equal(trajectory.terminated[:, 2], ends[:, 2])
    assert not trajectory.terminated[:, :2].any()
    waits = trajectory.observation[[3, 4, 8, 9], 2]  # before the steps after its death
    assert not trajectory.reward[[3, 4, 8, 9], 2].any()
    assert not waits.any()
    assert trajectory.episode_lengths.tolist() == [LENGTH] * 6


def test_a_game_that_keeps_its_dead_in_its_list_ends_too() -> None:
    usual, keeps = (
        sampled(ref(keeps=keeps), WarmEnvironments(most=1, watchdog=None))
        for keeps in (False, True)
    )
    assert keeps.episode_lengths.tolist() == [LENGTH] * 6
    np.testing.assert_array_equal(keeps.terminated[:, :2], usual.terminated[:, :2])


@pytest.mark.parametrize("cuts", [False, True])
def test_masks_in_infos_hold_while_an_agent_acts(cuts: bool) -> None:
    masked = ref(cuts=cuts).model_copy(update={"wrappers": (WrapperRef(name="ActionMask"),)})
    trajectory = sampled(masked, WarmEnvironments(most=1, watchdog=None))
    np.testing.assert_array_equal(trajectory.observation[:3, 2, -4:], [[0, 1, 1, 0]] * 3)
    np.testing.assert_array_equal(trajectory.observation[3:5, 2, -4:], [[1, 1, 1, 1]] * 2)
    assert set(trajectory.action[:, :2].flatten().tolist()) <= {1, 2}


def test_a_rollout_does_not_depend_on_those_before_it() -> None:
    env, used = ref(), WarmEnvironments(most=1, watchdog=None)
    sampled(env, used, seed=3, steps=12)
    policy = policy_of(env)
    evaluate_episode(
        task(env, mode="evaluate"), used.take(task(env, mode="evaluate"), ())[0].env, policy
    )
    new = WarmEnvironments(most=1, watchdog=None)
    for name in ("observation", "action", "reward"):
        np.testing.assert_array_equal(
            getattr(sampled(env, used, num_envs=6, steps=66), name),
            getattr(sampled(env, new, num_envs=6, steps=66), name),
        )


def test_a_limit_of_steps_cuts_all_agents() -> None:
    trajectory = sampled(ref("Short-v0"), WarmEnvironments(most=1, watchdog=None))
    assert trajectory.episode_lengths.tolist() == [2] * 15
    assert trajectory.truncated[1::2].all()


def test_an_evaluation_is_the_mean_over_agents_of_one_policys_actions() -> None:
    env = ref()
    policy, alone = policy_of(env), Parallel()
    episode = evaluate_episode(task(env, mode="evaluate"), make_environment(env), policy)
    seen, _ = alone.reset(seed=7, options=None)
    total = 0.0
    while alone.agents:
        rows = np.stack([seen[name] for name in alone.agents])
        actions = dict(
            zip(alone.agents, policy.mode(rows, policy.new_state(len(rows))), strict=True)
        )
        seen, rewards, *_ = alone.step(actions)
        total += sum(rewards.values()) / len(NAMES)
    assert episode.length == LENGTH
    assert episode.episode_return == pytest.approx(total)


def test_a_game_is_built_once() -> None:
    built: list[Parallel] = []

    def made(**_: object) -> Any:
        built.append(Parallel())
        return built[-1]

    gymnasium.register("Once-v0", entry_point=made)
    make_environment(ref("Once-v0")).close()
    assert len(built) == 1


def test_what_is_not_finite_ends_the_rollout() -> None:
    broken = ref(broken=True)
    job = task(broken)
    envs = WarmEnvironments(most=1, watchdog=None).take(job, ())[0].agents
    with pytest.raises(RolloutError, match="observation is not finite.*no agent can begin"):
        sample_fragment(job, envs, policy_of(ref()))


@pytest.mark.parametrize(
    ("env", "why"),
    [
        (ref(uneven=True), r"observation_space of ann is .*bob.*pad_observations_v0"),
        (ref("Turns-v0"), "its agents act in turns"),
        (ref("List-v0"), "makes list, which is neither a gymnasium.Env nor a parallel"),
    ],
)
def test_other_games_are_refused(env: EnvironmentRef, why: str) -> None:
    with pytest.raises(UnsupportedEnvironment, match=why):
        describe(env)


def test_a_wrapper_that_changes_actions_is_refused() -> None:
    sticky = WrapperRef(name="StickyAction", kwargs={"repeat_action_probability": 0.25})
    with pytest.raises(UnsupportedEnvironment, match="StickyAction changes actions"):
        describe(ref().model_copy(update={"wrappers": (sticky,)}))
