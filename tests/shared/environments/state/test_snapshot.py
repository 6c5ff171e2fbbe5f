"""Bytes of an episode that was left: equal, small, and refused when they are damaged."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from shared.contracts.environment_ref import EnvironmentRef
from shared.environments.building import make_environment
from shared.environments.state.keeper import StateError
from shared.environments.state.saving import save_state
from shared.environments.state.snapshot import (
    Snapshot,
    decode,
    encode,
    resume,
)
from shared.trajectory import codec


def made(env_id: str, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    return make_environment(EnvironmentRef(env_id=env_id, env_kwargs=kwargs))


def left(env: gymnasium.Env[Any, Any]) -> tuple[Snapshot, Any]:
    """Where an episode was left after some steps, and what was seen there."""
    env.action_space.seed(0)
    env.reset(seed=0)
    for _ in range(3):
        arrays, action = save_state(env), env.action_space.sample()
        observation = env.step(action)[0]
    return Snapshot(arrays, action), observation


def test_what_a_simulator_derives_is_there_again() -> None:
    env, other = made("Ant-v5"), made("Ant-v5")
    snapshot, observation = left(env)
    assert resume(other, decode(encode(snapshot))).tobytes() == observation.tobytes()
    derived = [made_env.unwrapped.data for made_env in (env, other)]  # type: ignore[attr-defined]
    for name in ("xpos", "cvel", "cfrc_ext", "qacc"):
        one, two = (getattr(data, name) for data in derived)
        assert one.tobytes() == two.tobytes(), name
        assert one.any(), name


def test_an_episode_that_had_ended_is_followed_by_the_next_one() -> None:
    env, other = made("CartPole-v1"), made("CartPole-v1")
    env.reset(seed=0)
    while not env.step(0)[2]:
        pass
    data = encode(Snapshot(save_state(env), None))
    assert decode(data).action is None
    assert resume(other, decode(data)).tobytes() == env.reset()[0].tobytes()


def test_equal_snapshots_are_equal_bytes() -> None:
    first, second = (encode(left(made("Hopper-v5"))[0]) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("env_id", "most"), [("Humanoid-v5", 2048), ("Hopper-v5", 1024), ("QbertNoFrameskip-v4", 8192)]
)
def test_snapshots_are_small(env_id: str, most: int) -> None:
    assert len(encode(left(made(env_id))[0])) <= most


@pytest.mark.parametrize(
    "action", [np.int64(3), np.array([0.5, -1.0], np.float32), np.array([2, 0]), 4]
)
def test_actions_come_back_as_they_were(action: Any) -> None:
    came: Any = decode(encode(Snapshot({"np_random": np.zeros(2)}, action))).action
    assert np.asarray(came).dtype == np.asarray(action).dtype
    np.testing.assert_array_equal(came, action)
    assert np.ndim(action) or isinstance(came, np.int64)


def test_damaged_bytes_are_refused() -> None:
    data = encode(left(made("Hopper-v5"))[0])
    for place in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        with pytest.raises(StateError, match="no snapshot"):
            decode(bytes(damaged))
    for size in (0, 1, len(data) // 2, len(data) - 1):
        with pytest.raises(StateError, match="no snapshot"):
            decode(data[:size])


def test_other_bytes_are_refused() -> None:
    with pytest.raises(StateError, match="of version 2"):
        decode(codec.encode({}, {"snapshot": "1"}))
    with pytest.raises(StateError, match="at most"):
        decode(codec.encode({"a": np.zeros(2**20)}, {"snapshot": "2"}))


def test_too_large_a_state_is_refused_before_it_is_sent() -> None:
    with pytest.raises(StateError, match="at most"):
        encode(Snapshot({"a": np.zeros(3 * 2**20, np.uint8)}, None))
    noise = np.random.default_rng(0).integers(0, 256, 300_000, np.uint8)
    with pytest.raises(StateError, match="compressed; at most"):
        encode(Snapshot({"a": noise}, None))
    with pytest.raises(StateError, match="dtype"):
        encode(Snapshot({}, np.zeros(1, np.complex64)))


def test_an_episode_that_ends_where_it_was_left_is_refused() -> None:
    snapshot, _ = left(made("CartPole-v1"))
    arrays = {**snapshot.arrays, "1.CartPoleEnv:state": np.array([9.0, 0, 0, 0])}
    with pytest.raises(StateError, match="ends where it was left"):
        resume(made("CartPole-v1"), Snapshot(arrays, snapshot.action))
