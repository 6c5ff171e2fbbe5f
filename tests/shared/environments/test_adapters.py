"""Spaces of every shape, as policies see them."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space
from numpy.typing import NDArray

from shared.environments.adapters import adapted
from shared.environments.spaces import action_spec, observation_spec

VECTOR = Box(-1, 1, (3,), np.float32)


class Echo(gymnasium.Env[Any, Any]):
    """Shows what it is told to and remembers what it is given."""

    def __init__(self, observation: Space[Any], action: Space[Any], shown: Any = None) -> None:
        self.observation_space, self.action_space = observation, action
        self.shown, self.given = shown, None

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self.shown, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.given = action
        return self.shown, 0.0, False, False, {}


def image(*shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (image(40, 50), lambda x: x[None]),
        (image(40, 50, 3), lambda x: x.transpose(2, 0, 1)),
        (image(4, 84, 84), lambda x: x),
        (image(2, 40, 50, 3), lambda x: x.transpose(0, 3, 1, 2).reshape(6, 40, 50)),
    ],
    ids=["grey", "colour", "stacked", "stacked colour"],
)
def test_images_have_their_channels_first(shown: NDArray[np.uint8], expected: Any) -> None:
    env = adapted(Echo(Box(0, 255, shown.shape, np.uint8), VECTOR, shown))
    for seen in (env.reset()[0], env.step(None)[0]):
        np.testing.assert_array_equal(seen, expected(shown), strict=True)
        assert env.observation_space.contains(seen)
    spec = observation_spec(env.observation_space)
    assert (spec.shape, spec.dtype) == (seen.shape, "uint8")


@pytest.mark.parametrize(
    "space",
    [
        Box(-1, 1, (2, 3), np.float64),
        Box(0, 9, (4, 1, 2), np.int64),
        Box(0, 255, (8, 8, 3), np.uint8),  # too small for a network of filters
        Box(0, 1, (5, 40, 40), np.float32),
    ],
    ids=str,
)
def test_other_boxes_become_vectors(space: Box) -> None:
    space.seed(0)
    shown = space.sample()
    env = adapted(Echo(space, VECTOR, shown))
    np.testing.assert_array_equal(env.reset()[0], shown.ravel())
    spec = observation_spec(env.observation_space)
    assert (spec.shape, spec.dtype) == ((shown.size,), "float32")


@pytest.mark.parametrize("shape", [(), (3,), (2,)])
def test_an_observation_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    env = adapted(Echo(Box(-1, 1, (1, 3)), VECTOR, np.zeros(shape, np.float32)))
    with pytest.raises(ValueError, match=r"the observation has shape .*Box\(-1.0, 1.0, \(1, 3\)"):
        env.reset()


@pytest.mark.parametrize(
    ("space", "taken", "handed"),
    [
        (Box(-1, 1, (2, 2)), [1, 2, 3, 4], np.array([[1, 2], [3, 4]], np.float32)),
        (Box(-1, 1, ()), [0.5], np.array(0.5, np.float32)),
        (MultiBinary(3), [1, 0, 1], np.array([1, 0, 1], np.int8)),
        (MultiBinary((2, 2)), [1, 0, 1, 1], np.array([[1, 0], [1, 1]], np.int8)),
        (MultiDiscrete(np.array([[2, 3], [4, 5]])), [1, 2, 3, 4], np.array([[1, 2], [3, 4]])),
    ],
    ids=str,
)
def test_actions_reach_the_environment_in_its_own_shape(
    space: Space[Any], taken: list[float], handed: NDArray[Any]
) -> None:
    env = Echo(VECTOR, space, np.zeros(3, np.float32))
    outer = adapted(env)
    outer.step(np.array(taken))
    np.testing.assert_array_equal(env.given, handed, strict=True)
    kind = "continuous" if isinstance(space, Box) else "multi_discrete"
    spec = action_spec(outer.action_space)
    assert spec.kind == kind
    assert outer.action_space.shape == (len(taken),)


@pytest.mark.parametrize("observation", [VECTOR, Box(0, 255, (128,), np.uint8)], ids=str)
@pytest.mark.parametrize("action", [VECTOR, Discrete(3), MultiDiscrete([2, 3])], ids=str)
def test_what_needs_no_change_gets_none(observation: Box, action: Space[Any]) -> None:
    env = Echo(observation, action)
    assert adapted(env) is env
    assert observation_spec(observation).dtype == "float32"
