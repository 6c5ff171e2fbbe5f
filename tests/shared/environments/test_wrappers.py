"""Wrappers by registered name, around real environments."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers as theirs

from shared.contracts.environment_ref import EnvironmentRef
from shared.environments import wrappers
from shared.environments.building import make_environment
from shared.environments.describing import describe
from shared.environments.spaces import UnsupportedEnvironment
from shared.environments.wrappers import register_wrapper


def ref(*names: str | tuple[str, dict[str, Any]], env_id: str = "CartPole-v1") -> EnvironmentRef:
    named = [(name, {}) if isinstance(name, str) else name for name in names]
    return EnvironmentRef.model_validate(
        {
            "env_id": env_id,
            "wrappers": [{"name": name, "kwargs": kwargs} for name, kwargs in named],
        }
    )


@pytest.mark.parametrize(
    ("ours", "wrap"),
    [
        (ref("TimeAwareObservation"), theirs.TimeAwareObservation),
        (
            ref(("FrameStackObservation", {"stack_size": 3})),
            lambda env: theirs.FlattenObservation(theirs.FrameStackObservation(env, 3)),
        ),
        (
            ref(
                ("RescaleObservation", {"min_obs": 0.0, "max_obs": 1.0}),
                ("FrameStackObservation", {"stack_size": 2}),
                ("ClipReward", {"min_reward": -0.5, "max_reward": 0.5}),
                env_id="MountainCar-v0",
            ),
            lambda env: theirs.ClipReward(
                theirs.FlattenObservation(
                    theirs.FrameStackObservation(
                        theirs.RescaleObservation(env, np.float32(0), np.float32(1)), 2
                    )
                ),
                -0.5,
                0.5,
            ),
        ),
    ],
    ids=["time", "stack", "three"],
)
def test_wrapped_environments_step_as_gymnasiums_do(ours: EnvironmentRef, wrap: Any) -> None:
    left, right = make_environment(ours), wrap(gymnasium.make(ours.env_id))
    assert left.observation_space.shape == right.observation_space.shape
    assert describe(ours).observation.shape == right.observation_space.shape
    right.action_space.seed(0)
    seen, expected = left.reset(seed=5)[0], right.reset(seed=5)[0]
    for _ in range(220):
        np.testing.assert_allclose(seen, expected, rtol=1e-6)
        action = right.action_space.sample()
        seen, *rest, _ = left.step(action)
        expected, *expected_rest, _ = right.step(action)
        assert rest == expected_rest
        if rest[1] or rest[2]:
            seen, expected = left.reset()[0], right.reset()[0]
    left.close()
    right.close()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (ref("TimeAware"), r"wrappers\.0\.name 'TimeAware' is no registered wrapper; did you mean"),
        (ref("xyzzy"), "there are: ActionMask, AsImage, BoundAction, ClipReward, "),
        (ref("os.system"), "is no registered wrapper"),
        (
            ref("TimeAwareObservation", ("FrameStackObservation", {"size": 3})),
            r"wrappers\.1: FrameStackObservation cannot be put around the environment with",
        ),
        (ref("GrayscaleObservation"), r"wrappers\.0: GrayscaleObservation cannot be put"),
        (ref("NormalizeObservation"), "is no registered wrapper"),  # keeps running statistics
        (ref("MaxAndSkipObservation"), "is no registered wrapper"),  # keeps frames over resets
    ],
)
def test_a_wrapper_that_cannot_be_is_refused_by_name(wrong: EnvironmentRef, message: str) -> None:
    for use in (describe, make_environment):
        with pytest.raises(UnsupportedEnvironment, match=message):
            use(wrong)


@pytest.fixture
def _forgets() -> Iterator[None]:
    before = dict(wrappers._REGISTERED)
    yield
    wrappers._REGISTERED.clear()
    wrappers._REGISTERED.update(before)


@pytest.mark.usefixtures("_forgets")
def test_a_package_can_register_its_own() -> None:
    def doubled(env: Any, *, by: int = 2) -> Any:
        return gymnasium.wrappers.TransformReward(env, lambda reward: by * float(reward))

    register_wrapper("Doubled", doubled)
    register_wrapper("Doubled", doubled)  # a module that is imported again
    env = make_environment(ref(("Doubled", {"by": 3})))
    env.reset(seed=0)
    assert env.step(0)[1] == 3.0
    with pytest.raises(ValueError, match="there is a wrapper 'ClipReward' already"):
        register_wrapper("ClipReward", doubled)


@pytest.mark.usefixtures("_forgets")
def test_without_a_wrapper_of_rewards_what_its_name_puts_below_stays() -> None:
    def tenfold(env: Any) -> Any:
        seen = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        scaled = theirs.TransformObservation(env, lambda observation: 10 * observation, seen)
        return theirs.TransformReward(scaled, lambda reward: 10 * float(reward))

    register_wrapper("Tenfold", tenfold)
    named = ref(("ClipReward", {"max_reward": 0.5}), "Tenfold")
    learned, raw = make_environment(named), make_environment(named, raw_rewards=True)
    np.testing.assert_array_equal(learned.reset(seed=0)[0], raw.reset(seed=0)[0])
    (seen, reward, *_), (same, score, *_) = learned.step(0), raw.step(0)
    np.testing.assert_array_equal(seen, same)
    assert (reward, score) == (5.0, 1.0)
