"""Whether the same seed and actions are found to give the same episode."""

import os
import random
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from numpy.typing import NDArray

from shared.contracts.environment_ref import EnvironmentRef
from shared.environments.building import make_environment
from shared.environments.describing import describe
from shared.environments.state.repeating import try_repeating

Observation = NDArray[np.float32]


class Walk(gymnasium.Env[Observation, Observation]):
    """A random walk from the generator that `draw` takes from."""

    observation_space = Box(-np.inf, np.inf, (1,))
    action_space = Box(-1, 1, (1,))

    def draw(self) -> float:
        return float(self.np_random.normal())

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.draw()
        return np.array([self.place], np.float32), {}

    def step(self, action: Observation) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        self.place += float(action[0]) + self.draw()
        return np.array([self.place], np.float32), self.place, False, False, {}


class WithGlobals(Walk):
    def draw(self) -> float:
        return random.gauss() + np.random.normal()  # noqa: NPY002 - that is the case


class WithEntropy(Walk):
    def draw(self) -> float:
        return float(os.urandom(1)[0])


class WithMapOfItsOwn(Walk):
    def __init__(self) -> None:
        self.of_this_one = int.from_bytes(os.urandom(6)) / 2**40  # one byte is equal in 1 of 256

    def draw(self) -> float:
        return super().draw() + self.of_this_one


class WithLeftovers(Walk):
    """Does not forget how often it was reset: every third time its episodes are others."""

    num_resets = 0

    def draw(self) -> float:
        return super().draw() + (self.num_resets % 3 == 0)

    def reset(self, **more: Any) -> tuple[Observation, dict[str, Any]]:
        self.num_resets += 1
        return super().reset(**more)


class Breaks(Walk):
    def draw(self) -> float:
        raise RuntimeError("out of order")


@pytest.mark.parametrize(
    ("kind", "repeats"),
    [
        (Walk, "reused"),
        (WithGlobals, "reused"),
        (WithLeftovers, "rebuilt"),
        (WithEntropy, "never"),
        (WithMapOfItsOwn, "never"),
        (Breaks, "never"),
    ],
)
def test_what_repeats_is_found_by_playing(kind: type[Walk], repeats: str) -> None:
    found = try_repeating(kind)
    assert found.repeats == repeats
    assert (found.why_not is None) is (repeats == "reused")
    assert found.draws_globally is (kind is WithGlobals)


class WithGlobalsAtTheStart(Walk):
    """Draws in each reset, and never after the last of the game."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        start = np.random.normal()  # noqa: NPY002 - that is the case
        observation, info = super().reset(seed=seed)
        self.place += start
        return observation + np.float32(start), info


def test_draws_from_a_global_generator_in_a_reset_are_seen_too() -> None:
    assert try_repeating(WithGlobalsAtTheStart).draws_globally


@pytest.mark.parametrize(
    ("env_id", "repeats"),
    [("LunarLander-v3", "reused"), ("BipedalWalker-v3", "rebuilt"), ("Pendulum-v1", None)],
)
def test_what_repeats_is_told_of_an_environment(env_id: str, repeats: str | None) -> None:
    if repeats is not None:
        pytest.importorskip("Box2D", reason="there is no wheel for this machine")
    assert describe(EnvironmentRef(env_id=env_id)).repeats == repeats


def test_an_environment_that_is_rebuilt_gives_the_same_episodes_whatever_was_before() -> None:
    pytest.importorskip("Box2D", reason="there is no wheel for this machine")
    ref = EnvironmentRef(env_id="BipedalWalker-v3")

    def rewards(resets_before: int, seed: int | None) -> list[float]:
        env = make_environment(ref, rebuild=True)
        for number in range(resets_before):
            env.reset(seed=number)
        env.reset(seed=seed)
        return [float(env.step(np.full(4, 0.5, np.float32))[1]) for _ in range(40)]

    assert rewards(0, 7) == rewards(1, 7) == rewards(2, 7) == rewards(3, 7)
    assert rewards(2, None) == rewards(2, None) != rewards(1, None)
