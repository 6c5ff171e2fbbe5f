"""Stacked observations travel as single frames and come back bit for bit."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from shared.contracts.environment_spec import DiscreteActionSpec, EnvironmentSpec, ObservationSpec
from shared.trajectory import codec, frames
from shared.trajectory.trajectory import (
    Trajectory,
    TrajectoryError,
    decode_trajectory,
    encode_trajectory,
)


@dataclass(frozen=True)
class Case:
    """Sizes and ends of a fragment."""

    num_steps: int
    num_envs: int
    num_stacked: int
    seed: int
    end_probability: float


CASES = st.builds(
    Case,
    num_steps=st.integers(1, 9),
    num_envs=st.integers(1, 3),
    num_stacked=st.integers(1, 5),
    seed=st.integers(0, 2**31),
    end_probability=st.sampled_from([0.0, 0.2, 0.7, 1.0]),
)


def spec_of(num_stacked: int, size: tuple[int, int] = (5, 4)) -> EnvironmentSpec:
    shape = (num_stacked, *size)
    return EnvironmentSpec(
        env_id="Toy-v0",
        observation=ObservationSpec(shape=shape, dtype="uint8", frame_stack=num_stacked),
        action=DiscreteActionSpec(n=3),
        max_episode_steps=None,
        episodes_are_lives=True,
        versions={},
    )


def fragment(case: Case, size: tuple[int, int] = (5, 4)) -> Trajectory:
    """A fragment stepped naively, one stack after the other, as an actor does it."""
    rng = np.random.default_rng(case.seed)
    steps = (case.num_steps, case.num_envs)
    terminated, truncated = rng.random((2, *steps)) < case.end_probability / 2
    shape = (case.num_stacked, *size)
    observation = np.zeros((case.num_steps + 1, case.num_envs, *shape), np.uint8)
    finals: dict[tuple[int, int], NDArray[np.uint8]] = {}
    for b in range(case.num_envs):
        stack = observation[0, b] = rng.integers(256, size=shape, dtype=np.uint8)
        for t in range(case.num_steps):
            stack = np.concatenate((stack[1:], rng.integers(256, size=(1, *size), dtype=np.uint8)))
            if truncated[t, b] and not terminated[t, b]:
                finals[t, b] = stack
            if (terminated | truncated)[t, b] and t + 1 < case.num_steps:
                stack = rng.integers(256, size=shape, dtype=np.uint8)
            observation[t + 1, b] = stack
    final = [finals[place] for place in sorted(finals)]
    ended = int((terminated | truncated).sum())
    return Trajectory(
        job_id="job-1",
        round=0,
        actor_index=0,
        policy_version=0,
        observation=observation,
        final_observation=np.array(final, np.uint8).reshape(-1, *shape),
        action=rng.integers(3, size=steps),
        reward=np.zeros(steps, np.float32),
        terminated=terminated,
        truncated=truncated,
        log_prob=np.zeros(steps, np.float32),
        episode_returns=np.zeros(ended // 2, np.float32),  # some lives end no game
        episode_lengths=np.ones(ended // 2, np.int32),
    )


@settings(max_examples=150)
@given(CASES)
def test_stacks_survive_the_wire_bit_for_bit(case: Case) -> None:
    sent = fragment(case)
    data = encode_trajectory(sent)
    back = decode_trajectory(data, environment=spec_of(case.num_stacked))
    np.testing.assert_array_equal(back.observation, sent.observation)
    np.testing.assert_array_equal(back.final_observation, sent.final_observation)
    assert not back.observation.flags.writeable
    num_frames = len(codec.decode(data).arrays["frame"])
    ends = (sent.terminated | sent.truncated)[:-1].sum()
    starts = case.num_envs + int(ends)
    steps = (case.num_steps + 1) * case.num_envs
    assert num_frames == steps + starts * (case.num_stacked - 1)


CASE = Case(6, 2, 3, seed=4, end_probability=0.3)


@pytest.mark.parametrize(
    ("field", "place"), [("observation", (3, 1, 0, 0, 0)), ("final_observation", (0, 0, 0, 0))]
)
def test_what_continues_nothing_is_sent_as_it_is(field: str, place: tuple[int, ...]) -> None:
    sent = fragment(CASE)
    stacks = getattr(sent, field).copy()
    stacks[place] ^= 1
    data = encode_trajectory(sent.replaced(**{field: stacks}))
    assert "frame" not in codec.decode(data).arrays
    back = decode_trajectory(data, environment=spec_of(3))
    np.testing.assert_array_equal(getattr(back, field), stacks)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("frame", np.zeros((3, 5, 4), np.uint8), r"frame has shape \(3, 5, 4\), expected \("),
        ("frame", np.zeros((30, 5, 5), np.uint8), "frame has shape"),
        ("frame", np.zeros((30, 5, 4), np.float32), "frame has dtype float32, expected uint8"),
        ("final_frame", np.zeros((99, 5, 4), np.uint8), "final_frame has shape"),
        ("final_frame", None, r"holds arrays \['frame'\], expected"),
        ("frame", None, r"holds arrays \['final_frame'\], expected"),
        ("terminated", np.zeros(6, np.bool_), "terminated has shape"),
        ("terminated", np.zeros((6, 3), np.bool_), r"truncated has shape \(6, 2\)"),
        ("truncated", None, r"holds arrays \['terminated'\], expected"),
        ("observation", np.zeros((7, 2, 3, 5, 4), np.uint8), "both frame and observation"),
        (
            "episode_returns",
            np.zeros(99, np.float32),
            r"episode_lengths has shape .*, expected \(99,\)",
        ),
    ],
)
def test_damaged_messages_are_refused_by_name(
    name: str, value: NDArray[np.generic] | None, message: str
) -> None:
    payload = codec.decode(encode_trajectory(fragment(CASE)))
    arrays = {**payload.arrays, name: value}
    kept = {key: array for key, array in arrays.items() if array is not None}
    with pytest.raises(TrajectoryError, match=message):
        decode_trajectory(codec.encode(kept, payload.metadata), environment=spec_of(3))


def test_memory_is_bounded_before_it_is_taken() -> None:
    """The stacks are three times the frames, and are counted before they are made."""
    data = encode_trajectory(fragment(Case(400, 1, 3, seed=0, end_probability=0.0), size=(20, 20)))
    single_bytes = 403 * 400
    with pytest.raises(TrajectoryError, match=r"observation takes \d+ bytes, at most \d+ are"):
        decode_trajectory(data, environment=spec_of(3, (20, 20)), max_bytes=2 * single_bytes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observation": ObservationSpec(shape=(60,), dtype="uint8")}, "frame is not allowed for"),
        ({"episodes_are_lives": False}, "episode_returns has shape"),
    ],
)
def test_frames_are_for_images_and_games_for_lives(change: dict[str, object], message: str) -> None:
    spec = spec_of(3).model_copy(update=change)
    with pytest.raises(TrajectoryError, match=message):
        decode_trajectory(encode_trajectory(fragment(CASE)), environment=spec)


def test_vectors_are_left_alone() -> None:
    arrays = {
        "observation": np.zeros((3, 1, 4), np.float32),
        "final_observation": np.zeros((0, 4), np.float32),
    }
    assert frames.packed(arrays).keys() == arrays.keys()
