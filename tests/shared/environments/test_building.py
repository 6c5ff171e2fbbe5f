"""Environments are described as they are, stepped as Gymnasium steps them, or refused clearly."""

import importlib.metadata
import re
from collections.abc import Callable, Iterator
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text
from gymnasium.wrappers import ClipReward, TimeLimit

from shared.contracts.environment_ref import EnvironmentRef, EnvKwarg
from shared.contracts.environment_spec import (
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
    MultiDiscreteActionSpec,
)
from shared.environments.building import make_environment
from shared.environments.describing import describe
from shared.environments.spaces import UnsupportedEnvironment
from shared.environments.step_limit import StepLimit

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
        observation: Space[Any] = VECTOR,
        action: Space[Any] = VECTOR,
        *,
        entry_point: Any = None,
        **options: Any,
    ) -> EnvironmentRef:
        make = entry_point or (lambda **_: _Spaces(observation, action))
        gymnasium.register("Toy-v0", entry_point=make, **options)
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


@pytest.mark.parametrize(
    ("limit", "flags"),
    [
        (None, [(False, False), (False, False), (True, False)]),
        (2, [(False, False), (False, True)]),
        (3, [(False, False), (False, False), (True, True)]),  # both where the two meet
    ],
)
def test_episodes_end_by_themselves_and_at_the_limit(
    registered: Any, limit: int | None, flags: list[tuple[bool, bool]]
) -> None:
    ref = registered(max_episode_steps=limit)
    assert describe(ref).max_episode_steps == limit
    env = make_environment(ref)
    for _ in range(2):
        env.reset()
        assert [env.step(None)[2:4] for _ in flags] == flags


def test_the_shorter_of_two_limits_holds(registered: Any) -> None:
    twice = registered(entry_point=lambda **_: TimeLimit(_Spaces(), 1), max_episode_steps=2)
    env = make_environment(twice)
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


def test_what_cannot_be_built_is_named_with_its_place_and_packages() -> None:
    with pytest.raises(UnsupportedEnvironment) as refused:
        describe(_ref("Hopper-v5", xml_file="none.xml"))
    first, outer, inner, packages = str(refused.value).splitlines()
    assert first.startswith("env_id 'Hopper-v5' cannot be built with env_kwargs ")
    assert re.search(r'File ".*mujoco_env.py", line \d+, in __init__', outer)
    assert re.search(r'File ".*mujoco.*.py", line \d+, in ', inner)
    assert packages.strip() == f"of gymnasium {gymnasium.__version__}"


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        (
            EnvironmentRef.model_construct(env_id="os:Hopper-v5", env_kwargs={}),
            "'os:Hopper-v5' is no registered",
        ),
        (_ref("Hoper-v5"), "'Hoper-v5' is no registered environment; did you mean Hopper-v5"),
        (
            _ref("xyzzy"),
            "'xyzzy' is no registered environment; if it is one of your own, name its package",
        ),
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


INF = np.inf


@pytest.mark.parametrize(
    ("observation", "action", "message"),
    [
        (Dict(a=VECTOR, b=Text(5)), VECTOR, "has observations of parts; its part b .*LeaveOut"),
        (Text(5), VECTOR, "supported are boxes of real numbers"),
        (Box(-1, 1, (), np.float32), VECTOR, r"of shape \(\); supported are 1 to"),
        (Box(-1, 1, (0,)), VECTOR, r"of shape \(0,\); supported are 1 to"),
        (Box(0, 255, (3, 1000, 1000), np.uint8), VECTOR, "supported are 1 to 1048576 numbers"),
        (VECTOR, Box(-INF, INF, (2,)), "has unbounded actions"),
        (VECTOR, Box(0, INF, (2,)), "has unbounded actions"),
        (VECTOR, Box(np.array([0, -INF]), np.ones(2), dtype=np.float64), "unbounded actions"),
        (VECTOR, Box(-1, 1, (0,)), "there is nothing to choose"),
        (VECTOR, MultiBinary(300), "300 choices, a policy makes at most 256 at once"),
        (VECTOR, MultiDiscrete([2] * 257), "257 choices, a policy makes at most 256"),
        (VECTOR, Box(0, 3, (2,), np.int32), "supported are Discrete, MultiDiscrete, MultiBinary"),
        (VECTOR, Dict(a=Discrete(2)), "has actions Dict"),
        (VECTOR, Text(5), "has actions Text"),
    ],
)
def test_spaces_nitro_cannot_train_on_are_refused(
    observation: Space[Any], action: Space[Any], message: str, registered: Any
) -> None:
    ref = registered(observation, action)
    for use in (describe, make_environment):
        with pytest.raises(UnsupportedEnvironment, match=message):
            use(ref)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("action_space", None, "has no action_space: set self.action_space in its constructor"),
        ("observation_space", None, "has no observation_space: set self.observation_space in"),
        ("action_space", 2, "has no action_space but 2: set self.action_space"),
    ],
)
def test_an_environment_without_a_space_is_refused_with_its_name(
    name: str, given: Any, message: str, registered: Any
) -> None:
    def make(**_: Any) -> _Spaces:
        env = _Spaces()
        delattr(env, name) if given is None else setattr(env, name, given)
        return env

    with pytest.raises(UnsupportedEnvironment, match=f"env_id 'Toy-v0' {message}"):
        describe(registered(entry_point=make))


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (MultiDiscrete([2, 3]), MultiDiscreteActionSpec(num_choices=(2, 3))),
        (MultiBinary(2), MultiDiscreteActionSpec(num_choices=(2, 2))),
        (Discrete(3, start=5), DiscreteActionSpec(n=3, start=5)),
        (
            MultiDiscrete(np.array([[2], [3]]), start=np.array([[0], [-4]])),
            MultiDiscreteActionSpec(num_choices=(2, 3), starts=(0, -4)),
        ),
        (Box(-2, 1, (1, 2)), ContinuousActionSpec(low=(-2, -2), high=(1, 1))),
    ],
    ids=str,
)
def test_actions_are_described(space: Space[Any], expected: object, registered: Any) -> None:
    assert describe(registered(action=space)).action == expected


@pytest.mark.parametrize(
    ("flaw", "message"),
    [
        ("observation", r"has shape \(2,\) and type float64, but its space says Box\(.*\(3,\)"),
        ("reward", r"step returned the reward array.* \(ndarray\); a reward is one number"),
        (
            "raise",
            r'first step was tried: OSError.*\n  File ".*", line \d+, in step\n    raise OSE',
        ),
    ],
)
def test_a_first_step_that_is_not_what_the_spaces_say_is_refused(
    flaw: str, message: str, registered: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(self: _Spaces, action: object) -> Any:
        if flaw == "raise":
            raise OSError("the simulator fell over")
        observation = np.zeros(2) if flaw == "observation" else np.zeros(3, np.float32)
        return observation, np.zeros(2) if flaw == "reward" else 0.0, False, False, {}

    monkeypatch.setattr(_Spaces, "step", step)
    with pytest.raises(UnsupportedEnvironment, match=message):
        describe(registered())


def test_seeds_are_as_long_as_actors_have_and_can_be_counted_up_from(
    registered: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    uses: list[Callable[[int], object]] = [lambda seed: np.array([seed, seed + 1], np.int64)]

    def reset(self: _Spaces, *, seed: int = 0, options: object = None) -> Any:
        for use in uses:
            use(seed)
        return np.zeros(3, np.float32), {}

    monkeypatch.setattr(_Spaces, "reset", reset)
    ref = registered()
    describe(ref)
    uses.append(np.random.RandomState)  # takes 32 bits only
    with pytest.raises(UnsupportedEnvironment, match=r"was tried: ValueError\('Seed must be"):
        describe(ref)


def test_what_the_libraries_warn_about_is_noted_and_warns_nobody() -> None:
    old, new = describe(_ref("Hopper-v4")), describe(_ref("Hopper-v5"))
    (note,) = old.notes
    assert "Hopper-v4 is out of date" in note
    assert "\x1b" not in note
    assert new.notes == ()


def test_whether_episodes_can_go_on_is_described_and_why_not(registered: Any) -> None:
    for env_id, fewest, most in (("Hopper-v5", 300, 600), ("QbertNoFrameskip-v4", 1000, 8192)):
        kept = describe(_ref(env_id))
        assert kept.keeps_state
        assert fewest < kept.snapshot_bytes < most
    other = describe(registered())
    assert (other.keeps_state, other.snapshot_bytes) == (False, 0)
    (note,) = other.notes
    assert note.startswith("episodes cannot be left and taken up: the state of _Spaces ")


def test_a_wrapper_knows_the_time_limit() -> None:
    wrappers = ({"name": "TimeAwareObservation"},)
    ref = EnvironmentRef.model_validate({"env_id": "Pendulum-v1", "wrappers": wrappers})
    env = make_environment(ref)
    env.reset(seed=0)
    seen = [env.step(np.zeros(1, np.float32))[0][-1] for _ in range(3)]
    assert seen == [1, 2, 3]
    assert describe(ref).max_episode_steps == 200


def test_a_missing_package_is_named(registered: Any) -> None:
    with pytest.raises(UnsupportedEnvironment, match="not installed: .*no_such_package"):
        make_environment(registered(entry_point="no_such_package.envs:Env"))
