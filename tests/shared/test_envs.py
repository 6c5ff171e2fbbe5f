"""Environments are described as they are, stepped as Gymnasium steps them, or refused clearly."""

import importlib.metadata
from collections.abc import Iterator
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Space
from gymnasium.wrappers import ClipReward, TimeLimit

from shared.environment_spec import ContinuousActionSpec, DiscreteActionSpec, EnvironmentSpec
from shared.envs import StepLimit, UnsupportedEnvironment, describe, make_environment
from shared.job_spec import EnvironmentRef, EnvKwarg

VECTOR = Box(-1, 1, (3,), np.float32)


class _Spaces(gymnasium.Env[Any, Any]):
    """Does nothing but have spaces; terminates at the third step."""

    def __init__(self, observation: Space[Any] = VECTOR, action: Space[Any] = VECTOR) -> None:
        self.observation_space, self.action_space = observation, action
        self.num_steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.num_steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action: object) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        self.num_steps += 1
        return np.zeros(3, np.float32), 5.0, self.num_steps == 3, False, {}


@pytest.fixture
def registered() -> Iterator[Any]:
    """Registers an environment as Toy-v0 for the time of a test."""

    def register(
        observation: Space[Any] = VECTOR, action: Space[Any] = VECTOR, **options: Any
    ) -> EnvironmentRef:
        gymnasium.register(
            "Toy-v0", entry_point=lambda **_: _Spaces(observation, action), **options
        )
        return EnvironmentRef(env_id="Toy-v0")

    yield register
    gymnasium.registry.pop("Toy-v0", None)


def _ref(env_id: str, **env_kwargs: EnvKwarg) -> EnvironmentRef:
    return EnvironmentRef(env_id=env_id, env_kwargs=env_kwargs)


def test_hopper_is_described_with_its_libraries() -> None:
    spec = describe(_ref("Hopper-v5"))
    assert spec.observation.shape == (11,)
    assert spec.observation.dtype == "float32"
    assert spec.action == ContinuousActionSpec(low=(-1,) * 3, high=(1,) * 3)
    assert spec.max_episode_steps == 1000
    assert spec.versions == {
        name: importlib.metadata.version(name) for name in ("gymnasium", "numpy", "mujoco")
    }
    assert EnvironmentSpec.model_validate_json(spec.model_dump_json()) == spec


def test_cartpole_is_discrete_and_needs_no_mujoco() -> None:
    spec = describe(_ref("CartPole-v1"))
    assert spec.action == DiscreteActionSpec(n=2)
    assert spec.max_episode_steps == 500
    assert spec.versions.keys() == {"gymnasium", "numpy"}


def test_keyword_arguments_reach_the_environment() -> None:
    longer = describe(_ref("Hopper-v5", exclude_current_positions_from_observation=False))
    assert longer.observation.shape == (12,)
    assert describe(_ref("CartPole-v1", max_episode_steps=7)).max_episode_steps == 7


@pytest.mark.parametrize("env_id", ["Hopper-v5", "CartPole-v1", "Pendulum-v1"])
def test_stepping_equals_gymnasiums_own_wrappers(env_id: str) -> None:
    ours, theirs = make_environment(_ref(env_id)), gymnasium.make(env_id)
    assert isinstance(ours, StepLimit)
    assert ours.env is ours.unwrapped
    theirs.action_space.seed(0)
    for seed in (1, 2):
        left, right = ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0]
        for _ in range(600):
            np.testing.assert_array_equal(left, right)
            action = theirs.action_space.sample()
            left, *ours_rest, _ = ours.step(action)
            right, *theirs_rest, _ = theirs.step(action)
            assert ours_rest == theirs_rest
            if ours_rest[1] or ours_rest[2]:
                left, right = ours.reset()[0], theirs.reset()[0]
    ours.close()
    theirs.close()


def test_both_flags_are_kept_where_the_limit_meets_the_end(registered: Any) -> None:
    env = make_environment(registered(max_episode_steps=3))
    for _ in range(2):
        env.reset()
        flags = [env.step(None)[2:4] for _ in range(3)]
        assert flags == [(False, False), (False, False), (True, True)]


def test_an_environment_without_a_limit_is_never_truncated(registered: Any) -> None:
    ref = registered()
    assert describe(ref).max_episode_steps is None
    env = make_environment(ref)
    env.reset()
    assert not any(env.step(None)[3] for _ in range(2000))


def test_the_shorter_of_two_limits_holds() -> None:
    gymnasium.register(
        "Twice-v0", entry_point=lambda **_: TimeLimit(_Spaces(), 1), max_episode_steps=2
    )
    try:
        env = make_environment(_ref("Twice-v0"))
    finally:
        del gymnasium.registry["Twice-v0"]
    env.reset()
    assert env.step(None)[3]


def test_wrappers_that_do_something_stay(registered: Any) -> None:
    wrapper = ClipReward.wrapper_spec(min_reward=-1, max_reward=1)
    ref = registered(max_episode_steps=2, additional_wrappers=(wrapper,))
    assert describe(ref).max_episode_steps == 2
    env = make_environment(ref)
    env.reset()
    assert [env.step(None)[1] for _ in range(2)] == [1, 1]
    assert env.step(None)[3]


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        (_ref("Hoper-v5"), "'Hoper-v5' is no registered environment; did you mean Hopper-v5"),
        (_ref("xyzzy"), "'xyzzy' is no registered environment$"),
        (_ref("Hopper"), "is no registered environment; did you mean"),
        (_ref("Hopper-v5", gravity=1), r"env_kwargs\.gravity is no keyword argument of Hopper-v5"),
        (_ref("CartPole-v1", x=1), r"env_kwargs\.x is no keyword argument of CartPole-v1"),
        (_ref("Hopper-v5", xml_file="no-such.xml"), "cannot be built with env_kwargs"),
        (_ref("CartPole-v1", render_mode="human"), r"env_kwargs\.render_mode is not allowed"),
        (_ref("CartPole-v1", disable_env_checker=False), "disable_env_checker is not allowed"),
        (_ref("CartPole-v1", id="Hopper-v5"), r"env_kwargs\.id is not allowed"),
        (_ref("CartPole-v1", max_episode_steps=0), "max_episode_steps is 0, expected a whole"),
        (_ref("CartPole-v1", max_episode_steps=True), "max_episode_steps is True"),
        (_ref("CartPole-v1", max_episode_steps="9"), "max_episode_steps is '9'"),
    ],
)
def test_a_wrong_reference_is_refused_by_name(ref: EnvironmentRef, message: str) -> None:
    for use in (describe, make_environment):
        with pytest.raises(UnsupportedEnvironment, match=message):
            use(ref)


def test_import_paths_are_refused() -> None:
    ref = EnvironmentRef.model_construct(env_id="os:Hopper-v5", env_kwargs={})
    with pytest.raises(UnsupportedEnvironment, match="'os:Hopper-v5' is no registered"):
        make_environment(ref)


@pytest.mark.parametrize(
    ("observation", "action", "message"),
    [
        (Discrete(3), VECTOR, "has observations Discrete"),
        (Box(0, 255, (8, 8, 3), np.uint8), VECTOR, "has observations Box"),
        (Box(-1, 1, (2, 2)), VECTOR, "supported are vectors of float32 or float64"),
        (Dict(a=VECTOR), VECTOR, "has observations Dict"),
        (VECTOR, Box(-np.inf, np.inf, (2,)), "has unbounded actions"),
        (VECTOR, Box(0, np.inf, (2,)), "has unbounded actions"),
        (VECTOR, Box(-1, 1, (2, 2)), "has actions Box"),
        (VECTOR, Box(0, 3, (2,), np.int32), "has actions Box"),
        (VECTOR, MultiBinary(3), "has actions MultiBinary"),
    ],
)
def test_spaces_nitro_cannot_train_on_are_refused(
    observation: Space[Any], action: Space[Any], message: str, registered: Any
) -> None:
    ref = registered(observation, action)
    for use in (describe, make_environment):
        with pytest.raises(UnsupportedEnvironment, match=message):
            use(ref)


def test_a_missing_package_is_named() -> None:
    gymnasium.register("Missing-v0", entry_point="no_such_package.envs:Env")
    try:
        with pytest.raises(UnsupportedEnvironment, match="not installed: .*no_such_package"):
            make_environment(_ref("Missing-v0"))
    finally:
        del gymnasium.registry["Missing-v0"]
