"""What is kept of which layer, and what is refused."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv

from shared.contracts.environment_ref import EnvironmentRef
from shared.environments.building import make_environment
from shared.environments.state.keeper import StateError
from shared.environments.state.saving import load_state, save_state
from shared.environments.state.snapshot import snapshot_bytes

Env = gymnasium.Env[Any, Any]


def made(env_id: str, **kwargs: Any) -> Env:
    env = make_environment(EnvironmentRef(env_id=env_id, env_kwargs=kwargs))
    env.reset(seed=0)
    return env


def test_a_state_is_numbers_by_layer_and_none_of_the_environments_own_arrays() -> None:
    env = made("Hopper-v5")
    arrays = save_state(env)
    assert sorted(arrays) == [
        "0.StepLimit:elapsed",
        "1.HopperEnv:physics",
        "1.HopperEnv:version",
        "np_random",
    ]
    kept = {name: array.copy() for name, array in arrays.items()}
    for _ in range(3):
        env.step(env.action_space.sample())
    assert all(np.array_equal(arrays[name], kept[name]) for name in kept)
    load_state(env, arrays)
    env.step(env.action_space.sample())
    assert all(np.array_equal(arrays[name], kept[name]) for name in kept)


class OwnHopper(HopperEnv):
    """May do anything."""


class HalfHopper(HopperEnv):
    """Has one method of the two; the other one is MuJoCo's, of two arguments."""

    def get_state(self) -> dict[str, np.ndarray[Any, Any]]:
        return {}


class OwnCartPole(CartPoleEnv):
    """May do anything."""


@pytest.mark.parametrize(
    ("make", "layer"),
    [
        (OwnHopper, "OwnHopper"),
        (HalfHopper, "HalfHopper"),
        (OwnCartPole, "OwnCartPole"),
        (lambda: wrappers.NormalizeObservation(CartPoleEnv()), "NormalizeObservation"),
        (lambda: wrappers.RecordEpisodeStatistics(CartPoleEnv()), "RecordEpisodeStatistics"),
    ],
)
def test_a_layer_that_is_not_known_is_named(make: Callable[[], Env], layer: str) -> None:
    env = make()
    env.reset(seed=0)
    with pytest.raises(StateError, match=f"the state of {layer} "):
        snapshot_bytes(env)
    with pytest.raises(StateError, match=layer):
        save_state(env)
    env.close()


def test_another_generator_than_numpys_default_is_not_kept() -> None:
    env = CartPoleEnv()
    env.reset(seed=0)
    env.np_random = np.random.Generator(np.random.MT19937(0))
    with pytest.raises(StateError, match="^np_random is a MT19937, only PCG64 is kept$"):
        snapshot_bytes(env)


def test_a_generator_that_there_is_not_yet_is_kept_as_none() -> None:
    fresh, used = CartPoleEnv(), CartPoleEnv()
    used.reset(seed=0)
    load_state(used, save_state(fresh))
    assert used._np_random is None
    assert used.state is None


def test_half_a_random_number_that_is_left_over_is_kept() -> None:
    one, other = CartPoleEnv(), CartPoleEnv()
    one.reset(seed=0)
    one.np_random.integers(0, 2**31, dtype=np.int32)  # takes 32 of 64 bits
    load_state(other, save_state(one))
    expected, given = (e.np_random.integers(0, 2**31, 9, dtype=np.int32) for e in (one, other))
    np.testing.assert_array_equal(given, expected)


class Strange(CartPoleEnv):
    """Keeps what is no number, or fails."""

    kept: Any = "text"

    def get_state(self) -> Any:
        return {"words": np.array(self.kept), "more": 1 / len(self.kept)}

    def set_state(self, state: Any) -> None: ...


def test_what_a_layer_of_ones_own_returns_is_checked() -> None:
    env = Strange()
    env.reset(seed=0)
    with pytest.raises(StateError, match="^0.Strange:words is of <U4, which is not kept$"):
        snapshot_bytes(env)
    env.kept = ""
    with pytest.raises(StateError, match="get_state failed: ZeroDivisionError"):
        snapshot_bytes(env)


def test_a_state_of_other_layers_is_refused_and_changes_nothing() -> None:
    env = made("CartPole-v1")
    before = save_state(env)
    with pytest.raises(StateError, match="HopperEnv.*but the layers are 0.StepLimit, 1.CartPole"):
        load_state(env, save_state(made("Hopper-v5")))
    assert all(np.array_equal(array, before[name]) for name, array in save_state(env).items())


@pytest.mark.parametrize(
    ("env_id", "name", "value", "message"),
    [
        ("CartPole-v1", "1.CartPoleEnv:state", np.zeros(5), "expected \\(4,\\)"),
        ("CartPole-v1", "1.CartPoleEnv:steps_beyond_terminated", np.zeros(2), "expected \\(\\)"),
        ("CartPole-v1", "0.StepLimit:elapsed", np.zeros(2), "StepLimit does not fit"),
        ("CartPole-v1", "np_random", np.zeros(2), "np_random"),
        ("Hopper-v5", "1.HopperEnv:physics", np.zeros(57), "expected \\(58,\\)"),
        ("Hopper-v5", "1.HopperEnv:version", np.array(200), "MuJoCo 200"),
        ("PongNoFrameskip-v4", "1.AtariGame:frames", np.zeros((3, 84, 83)), "as many frames"),
        ("PongNoFrameskip-v4", "1.AtariGame:counts", np.zeros(4) - 1, "AtariGame does not fit"),
        ("PongNoFrameskip-v4", "1.AtariGame:emulator", np.zeros(9, np.uint8), "AtariGame does"),
    ],
)
def test_an_array_that_does_not_fit_is_refused(
    env_id: str, name: str, value: np.ndarray[Any, Any], message: str
) -> None:
    env = made(env_id)
    arrays = save_state(env)
    with pytest.raises(StateError, match=message):
        load_state(env, {**arrays, name: value})
    del arrays[name]
    with pytest.raises(StateError):
        load_state(env, arrays)


def test_answers_that_were_remembered_are_forgotten() -> None:
    standing, fallen = made("Hopper-v5"), made("Hopper-v5")
    terminated = False
    while not terminated:
        terminated = fallen.step(np.ones(3, np.float32))[2]
    bare: Any = fallen.unwrapped
    assert not bare.is_healthy
    load_state(fallen, save_state(standing))
    assert bare.is_healthy
