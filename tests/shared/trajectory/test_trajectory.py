"""Trajectories survive the wire bit for bit; anything else is refused by the field's name."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from shared.contracts.environment_spec import (
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
    MultiDiscreteActionSpec,
    ObservationSpec,
)
from shared.trajectory import codec
from shared.trajectory.trajectory import (
    Episode,
    Trajectory,
    TrajectoryError,
    decode_episode,
    decode_trajectory,
    encode_episode,
    encode_trajectory,
)

Arrays = Mapping[str, NDArray[np.generic]]


def _spec(*, discrete: bool = False) -> EnvironmentSpec:
    action = (
        DiscreteActionSpec(n=4) if discrete else ContinuousActionSpec(low=(-1, -2), high=(1, 2))
    )
    return EnvironmentSpec(
        env_id="Toy-v0",
        observation=ObservationSpec(shape=(3,), dtype="float32"),
        action=action,
        max_episode_steps=None,
        versions={},
    )


def _trajectory(
    *, num_steps: int = 6, num_envs: int = 2, discrete: bool = False, seed: int = 0
) -> Trajectory:
    rng = np.random.default_rng(seed)
    steps = (num_steps, num_envs)
    terminated, truncated = rng.random(steps) < 0.3, rng.random(steps) < 0.3
    num_cut = int((truncated & ~terminated).sum())
    num_ended = int((truncated | terminated).sum())
    normal = rng.standard_normal((num_steps, num_envs, 2), dtype=np.float32)
    return Trajectory(
        job_id="job-1",
        round=3,
        actor_index=7,
        policy_version=2,
        dropped_episodes=3,
        observation=rng.standard_normal((num_steps + 1, num_envs, 3), dtype=np.float32),
        final_observation=rng.standard_normal((num_cut, 3), dtype=np.float32),
        action=rng.integers(4, size=steps) if discrete else normal,
        reward=rng.standard_normal(steps, dtype=np.float32),
        terminated=terminated,
        truncated=truncated,
        log_prob=rng.standard_normal(steps, dtype=np.float32),
        episode_returns=rng.standard_normal(num_ended, dtype=np.float32),
        episode_lengths=rng.integers(1, 9, size=num_ended, dtype=np.int32),
        begun_anew=int(rng.integers(3)),
        snapshots=tuple(rng.bytes(int(n)) for n in rng.integers(0, 9, num_envs))[
            : num_envs * (seed % 2)
        ],
        earlier_returns=tuple(rng.standard_normal(num_envs).tolist())[: num_envs * (seed % 2)],
    )


def _assert_same(left: Trajectory, right: Trajectory) -> None:
    assert left.arrays.keys() == right.arrays.keys()
    for name, array in left.arrays.items():
        np.testing.assert_array_equal(array, right.arrays[name], strict=True)
    for name in Trajectory.__slots__:
        assert getattr(left, name) == getattr(right, name)


def _with(trajectory: Trajectory, field: str, value: object) -> bytes:
    return encode_trajectory(trajectory.replaced(**{field: value}))


@given(
    num_steps=st.integers(1, 12),
    num_envs=st.integers(1, 4),
    discrete=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_a_trajectory_survives_the_wire(
    num_steps: int, num_envs: int, discrete: bool, seed: int
) -> None:
    trajectory = _trajectory(num_steps=num_steps, num_envs=num_envs, discrete=discrete, seed=seed)
    data = encode_trajectory(trajectory)
    _assert_same(decode_trajectory(data, environment=_spec(discrete=discrete)), trajectory)
    assert encode_trajectory(trajectory) == data
    assert trajectory.num_steps == num_steps * num_envs
    assert trajectory.num_envs == num_envs


@pytest.mark.parametrize(
    ("field", "index"),
    [
        ("observation", (6, 1, 2)),
        ("final_observation", (0, 1)),
        ("action", (3, 0, 1)),
        ("reward", (5, 1)),
        ("log_prob", (0, 0)),
        ("episode_returns", (0,)),
    ],
)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_by_place(
    field: str, index: tuple[int, ...], value: float
) -> None:
    trajectory = _trajectory()
    array = getattr(trajectory, field).copy()
    array[index] = value
    with pytest.raises(TrajectoryError, match=rf"{field} is not finite at \[{index[0]}"):
        decode_trajectory(_with(trajectory, field, array), environment=_spec())


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("observation", np.zeros((6, 2, 3), np.float32), r"observation has shape \(6, 2, 3\)"),
        ("observation", np.zeros((7, 2, 4), np.float32), "observation has shape"),
        ("observation", np.zeros((7, 2, 3)), "observation has dtype float64"),
        ("final_observation", np.zeros((99, 3), np.float32), "final_observation has shape"),
        ("action", np.zeros((6, 2), np.int64), "action has dtype int64, expected float32"),
        ("action", np.zeros((6, 2, 3), np.float32), "action has shape"),
        ("reward", np.zeros(6, np.float32), "reward has shape"),
        ("reward", np.zeros((0, 2), np.float32), "reward has shape"),
        ("reward", np.zeros((6, 0), np.float32), "reward has shape"),
        ("reward", np.zeros((6, 2), np.int32), "reward has dtype int32"),
        ("terminated", np.zeros((6, 1), np.bool_), "terminated has shape"),
        ("truncated", np.zeros((6, 2), np.uint8), "truncated has dtype uint8"),
        ("truncated", np.zeros((6, 1), np.bool_), "truncated has shape"),
        ("log_prob", np.zeros((5, 2), np.float32), "log_prob has shape"),
        ("episode_returns", np.zeros(99, np.float32), r"episode_lengths has .*, expected \(99,\)"),
        ("episode_lengths", np.zeros(99, np.int32), "episode_lengths has shape"),
        ("episode_lengths", _trajectory().episode_lengths * 0, "episode_lengths holds a length"),
        ("earlier_returns", (1.0,), "earlier_return has 1 numbers, as many as snapshots"),
        ("earlier_returns", (np.nan, 0.0), "earlier_return holds something else"),
        ("job_id", "../secrets", "job_id is '../secrets'"),
        ("job_id", "job\n", "job_id"),
        ("round", -1, "round is '-1'"),
        ("actor_index", "٣", "actor_index"),
        ("policy_version", "1e3", "policy_version is '1e3'"),
        ("policy_version", 10**30, "policy_version"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object, message: str) -> None:
    with pytest.raises(TrajectoryError, match=message):
        decode_trajectory(_with(_trajectory(), field, value), environment=_spec())


def test_each_ended_episode_is_reported_unless_lives_are_episodes() -> None:
    ends = np.arange(12).reshape(6, 2) % 4 == 1  # three, all in the second environment
    nowhere = np.zeros((6, 2), np.bool_)

    def takes(num_returns: int, num_lengths: int, *, lives: bool, left: int = 0) -> bool:
        trajectory = _trajectory().replaced(
            terminated=ends,
            truncated=nowhere,
            final_observation=np.zeros((0, 3), np.float32),
            episode_returns=np.ones(num_returns, np.float32),
            episode_lengths=np.ones(num_lengths, np.int32),
            snapshots=(b"left",) * left,
            earlier_returns=(0.0,) * left,
        )
        data = encode_trajectory(trajectory)
        spec = _spec().model_copy(update={"episodes_are_lives": lives})
        try:
            return decode_trajectory(data, environment=spec).episode_returns.size == num_returns
        except TrajectoryError:
            return False

    assert [takes(n, n, lives=False) for n in range(5)] == [False, False, False, True, False]
    assert [takes(n, n, lives=True) for n in range(5)] == [True, True, True, True, False]
    assert not takes(2, 1, lives=True)
    assert not takes(2, 3, lives=True)
    # Of each environment that goes on, one more may end on the way to the next life.
    assert [takes(n, n, lives=True, left=2) for n in range(7)] == [True] * 6 + [False]


@pytest.mark.parametrize("action", [-1, 4])
def test_discrete_actions_out_of_range_are_refused(action: int) -> None:
    trajectory = _trajectory(discrete=True)
    actions = np.full((6, 2), action, np.int64)
    with pytest.raises(TrajectoryError, match=r"outside 0\.\.3"):
        decode_trajectory(_with(trajectory, "action", actions), environment=_spec(discrete=True))


def _recoded(change: Arrays, *, drop: str | None = None, **metadata: str) -> bytes:
    payload = codec.decode(encode_trajectory(_trajectory()))
    arrays = {name: a for name, a in (payload.arrays | dict(change)).items() if name != drop}
    return codec.encode(arrays, payload.metadata | metadata)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a zstd frame"),
        (_recoded({}, drop="reward"), "holds arrays"),
        (_recoded({"value": np.zeros((6, 2), np.float32)}), "holds arrays"),
        (_recoded({}, format="nitro-trajectory/1"), "format is 'nitro-trajectory/1'"),
        (_recoded({}, round=""), "round is ''"),
        (_recoded({}, round="03"), "round is '03'"),
    ],
)
def test_what_is_no_trajectory_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(TrajectoryError, match=message):
        decode_trajectory(data, environment=_spec())


def test_a_trajectory_above_the_size_limit_is_refused() -> None:
    with pytest.raises(TrajectoryError, match="at most 100 allowed"):
        decode_trajectory(encode_trajectory(_trajectory()), environment=_spec(), max_bytes=100)


EPISODE = Episode(
    job_id="job-1", round=3, actor_index=0, policy_version=4, episode_return=-1e300, length=17
)


def test_an_episode_survives_the_wire_in_full_precision() -> None:
    for value in (0.1 + 0.2, -1e300, 0.0):
        episode = replace(EPISODE, episode_return=value)
        assert decode_episode(encode_episode(episode)) == episode
    shortest = replace(EPISODE, length=1, dropped_episodes=2)
    assert decode_episode(encode_episode(shortest)) == shortest


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"nonsense", "not a zstd frame"),
        (encode_trajectory(_trajectory()), "format is 'nitro-trajectory/4'"),
        (codec.encode({"a": np.zeros(2**16, np.uint8)}, {}), "at most 65536 allowed"),
        (encode_episode(replace(EPISODE, episode_return=float("nan"))), "episode_return is nan"),
        (encode_episode(replace(EPISODE, length=0)), "length is 0"),
        (encode_episode(replace(EPISODE, round=-2)), "round is '-2'"),
        (codec.encode({}, {"format": "nitro-episode/1"}), "holds arrays"),
        (
            codec.encode(
                {"episode_return": np.zeros(2), "length": np.zeros(2, np.int64)},
                {"format": "nitro-episode/1"},
            ),
            r"episode_return has shape \(2,\)",
        ),
    ],
)
def test_what_is_no_episode_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(TrajectoryError, match=message):
        decode_episode(data)


def test_several_choices_at_once_survive_and_are_held_to_their_numbers() -> None:
    action = MultiDiscreteActionSpec(num_choices=(2, 5))
    spec = _spec().model_copy(update={"action": action})
    chosen = np.random.default_rng(0).integers((2, 5), size=(6, 2, 2))
    trajectory = _trajectory().replaced(action=chosen)
    decoded = decode_trajectory(encode_trajectory(trajectory), environment=spec)
    _assert_same(decoded, trajectory)
    chosen[3, 1] = (2, 4)
    with pytest.raises(TrajectoryError, match=r"action holds a number outside 0\.\.\[1 4\]"):
        decode_trajectory(_with(trajectory, "action", chosen), environment=spec)
    with pytest.raises(TrajectoryError, match="action has shape"):
        decode_trajectory(_with(trajectory, "action", chosen[..., 0]), environment=spec)
