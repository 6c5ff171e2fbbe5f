"""The circular buffer against its rules: N batches, K uses, fresh first, nothing lost."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from numpy.typing import NDArray

from learning.data.fragments import fragments_of
from learning.data.replay_buffer import ReplayBuffer
from shared.trajectory.trajectory import Trajectory

STEPS = 4


def trajectory(number: int, *, num_envs: int = 1) -> Trajectory:
    """A trajectory that is recognised by its rewards."""
    shape = (STEPS, num_envs)
    return Trajectory(
        job_id="job",
        round=0,
        actor_index=number,
        policy_version=number,
        observation=np.zeros((STEPS + 1, num_envs, 1), np.float32),
        final_observation=np.zeros((0, 1), np.float32),
        action=np.zeros(shape, np.int64),
        reward=np.full(shape, number, np.float32),
        terminated=np.zeros(shape, np.bool_),
        truncated=np.zeros(shape, np.bool_),
        log_prob=np.zeros(shape, np.float32),
        episode_returns=np.zeros(0, np.float32),
        episode_lengths=np.zeros(0, np.int32),
    )


def drawn(buffer: ReplayBuffer) -> tuple[tuple[int, ...], int]:
    draw = buffer.draw()
    return tuple(draw.fragments.policy_version.tolist()), draw.uses


def test_trajectories_wait_until_they_fill_a_batch() -> None:
    buffer = ReplayBuffer(batch_size=3 * STEPS, num_batches=1, max_uses=1)
    buffer.add([trajectory(0), trajectory(1)])
    assert not buffer.ready
    buffer.add([trajectory(2), trajectory(3)])
    assert buffer.has_fresh
    assert drawn(buffer) == ((0, 1, 2), 1)
    assert not buffer.ready
    buffer.flush()
    assert drawn(buffer) == ((3,), 1)
    buffer.flush()
    assert not buffer.ready


def test_a_batch_may_exceed_its_size_by_part_of_a_trajectory() -> None:
    buffer = ReplayBuffer(batch_size=STEPS + 1, num_batches=1, max_uses=1)
    buffer.add([trajectory(0), trajectory(1)])
    assert drawn(buffer) == ((0, 1), 1)


def test_with_one_place_and_one_use_it_is_a_queue() -> None:
    buffer = ReplayBuffer(batch_size=STEPS, num_batches=1, max_uses=1)
    buffer.add([trajectory(i) for i in range(5)])
    assert [drawn(buffer) for _ in range(5)] == [((i,), 1) for i in range(5)]
    assert not buffer.ready


def test_fresh_batches_come_first_then_passes_over_the_rest() -> None:
    buffer = ReplayBuffer(batch_size=STEPS, num_batches=2, max_uses=3)
    buffer.add([trajectory(0), trajectory(1)])
    assert [drawn(buffer) for _ in range(3)] == [((0,), 1), ((1,), 1), ((0,), 2)]
    buffer.add([trajectory(2)])
    # 2 puts 0 out of the two places, is used as often as 1, and then both by turns.
    expected = [((2,), 1), ((1,), 2), ((2,), 2), ((1,), 3), ((2,), 3)]
    assert [drawn(buffer) for _ in range(5)] == expected
    assert not buffer.ready


def test_as_long_as_there_is_room_every_batch_has_all_its_uses() -> None:
    buffer = ReplayBuffer(batch_size=STEPS, num_batches=3, max_uses=2)
    buffer.add([trajectory(0), trajectory(1)])
    assert [drawn(buffer) for _ in range(4)] == [((0,), 1), ((1,), 1), ((0,), 2), ((1,), 2)]
    assert not buffer.ready


def test_drawing_from_an_empty_buffer_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="holds no batch"):
        ReplayBuffer(batch_size=1, num_batches=1, max_uses=1).draw()


class Rules(RuleBasedStateMachine):
    """Any order of adding, flushing, drawing and resuming, beside a plain account of it."""

    def __init__(self) -> None:
        super().__init__()
        self.num_batches, self.max_uses = 3, 4
        self.buffer = self.new_buffer()
        self.count = 0
        self.uses: Counter[tuple[int, ...]] = Counter()
        self.order: list[tuple[int, ...]] = []  # batches in the order of their first use

    def new_buffer(self) -> ReplayBuffer:
        return ReplayBuffer(
            batch_size=2 * STEPS, num_batches=self.num_batches, max_uses=self.max_uses
        )

    @rule(num_envs=st.integers(1, 3))
    def add(self, num_envs: int) -> None:
        self.buffer.add([trajectory(self.count, num_envs=num_envs)])
        self.count += 1

    @rule()
    def flush(self) -> None:
        self.buffer.flush()

    @precondition(lambda self: self.buffer.ready)
    @rule()
    def draw(self) -> None:
        fresh = self.buffer.has_fresh
        batch, use = drawn(self.buffer)
        assert (use == 1) == fresh
        assert use == self.uses[batch] + 1 <= self.max_uses
        self.uses[batch] = use
        if fresh:
            assert not self.order or min(batch) > max(self.order[-1])
            self.order.append(batch)
        # At most N batches are kept, so what is replayed is among the last N first used.
        assert batch in self.order[-self.num_batches :]

    @rule()
    def resume(self) -> None:
        other = self.new_buffer()
        other.add([trajectory(999)])
        self.buffer = other.restored(self.buffer.state())

    @invariant()
    def nothing_is_lost(self) -> None:
        state = self.buffer.state()
        held = state.get("policy_version", np.zeros(0, np.int64)).tolist()
        used = {number for batch in self.uses for number in batch}
        assert used | set(held) == set(range(self.count))


TestRules = Rules.TestCase
TestRules.settings = settings(max_examples=40, stateful_step_count=40)


@given(data=st.data())
@settings(max_examples=20)
def test_a_buffer_that_was_saved_goes_on_the_same(data: st.DataObject) -> None:
    one, other = (ReplayBuffer(batch_size=2 * STEPS, num_batches=2, max_uses=3) for _ in range(2))
    for number in range(data.draw(st.integers(0, 9))):
        one.add([trajectory(number, num_envs=data.draw(st.integers(1, 2)))])
        if one.ready and data.draw(st.booleans()):
            one.draw()
    other = other.restored(one.state())
    for buffer in (one, other):
        buffer.flush()
    while one.ready:
        assert drawn(one) == drawn(other)
    assert not other.ready


@pytest.mark.parametrize("name", ["widths", "uses", "reward"])
def test_a_damaged_state_is_refused_and_changes_nothing(name: str) -> None:
    buffer = ReplayBuffer(batch_size=STEPS, num_batches=2, max_uses=2)
    buffer.add([trajectory(0)])
    state = buffer.state()
    damaged = {**state, name: state[name][:-1]}
    with pytest.raises(ValueError, match="shape|do not match|1 columns for parts of"):
        buffer.restored(damaged)
    del damaged[name]
    with pytest.raises(ValueError, match="is None|holds arrays"):
        buffer.restored(damaged)
    assert drawn(buffer) == ((0,), 1)


def test_widths_that_do_not_cover_the_columns_are_refused() -> None:
    buffer = ReplayBuffer(batch_size=STEPS, num_batches=2, max_uses=2)
    buffer.add([trajectory(0)])
    state = buffer.state()
    with pytest.raises(ValueError, match="1 columns for parts of"):
        buffer.restored({**state, "widths": np.array([2], np.int64)})


def images(number: int, *, stacked: bool) -> Trajectory:
    """A trajectory of noise in stacks of three frames, with both ends of an episode inside."""
    rng = np.random.default_rng(number)
    plain, num_envs = trajectory(number, num_envs=2), 2
    terminated, truncated = plain.terminated.copy(), plain.truncated.copy()
    terminated[0, 1] = truncated[2, 0] = True
    observation = rng.integers(256, size=(STEPS + 1, num_envs, 3, 16, 16), dtype=np.uint8)
    final = rng.integers(256, size=(1, 3, 16, 16), dtype=np.uint8)
    if stacked:
        begins = np.zeros((STEPS + 1, num_envs), np.bool_)
        begins[0] = begins[1, 1] = begins[3, 0] = True
        for t, b in np.argwhere(~begins):
            observation[t, b, :-1] = observation[t - 1, b, 1:]
        final[0, :-1] = observation[2, 0, 1:]
    return plain.replaced(
        observation=observation,
        final_observation=final,
        terminated=terminated,
        truncated=truncated,
    )


def filled(*, stacked: bool) -> ReplayBuffer:
    """A buffer with a batch that was used, a fresh one and a trajectory that waits."""
    buffer = ReplayBuffer(batch_size=4 * STEPS, num_batches=2, max_uses=3)
    buffer.add([images(i, stacked=stacked) for i in range(5)])
    buffer.draw()
    return buffer


def everything(buffer: ReplayBuffer) -> list[tuple[int, dict[str, bytes]]]:
    buffer.flush()
    found = []
    while buffer.ready:
        draw = buffer.draw()
        arrays = draw.fragments.arrays
        assert all(array.flags.writeable for array in arrays.values())
        found.append((draw.uses, {name: array.tobytes() for name, array in arrays.items()}))
    return found


@pytest.mark.parametrize("stacked", [False, True])
def test_images_come_back_to_the_last_bit(*, stacked: bool) -> None:
    one, other = filled(stacked=stacked), ReplayBuffer(batch_size=1, num_batches=2, max_uses=3)
    other = other.restored(one.state())
    assert everything(other) == everything(one)


def test_each_frame_of_a_stack_is_saved_once() -> None:
    def num_bytes(state: dict[str, NDArray[np.generic]]) -> int:
        return sum(array.nbytes for array in state.values())

    # Noise: nothing else than leaving frames out makes it smaller.
    whole, stacks = (num_bytes(filled(stacked=stacked).state()) for stacked in (False, True))
    per_frame = 16 * 16
    num_observations, num_begun = 5 * 2 * (STEPS + 1), 5 * 4
    assert whole == pytest.approx(3 * per_frame * (num_observations + 5), rel=0.1)
    expected = per_frame * (num_observations + 2 * num_begun + 5)
    assert stacks == pytest.approx(expected, rel=0.1)


def test_images_saved_by_an_earlier_version_are_read() -> None:
    one, other = filled(stacked=True), ReplayBuffer(batch_size=1, num_batches=2, max_uses=3)
    plain = fragments_of(images(7, stacked=True))
    earlier = {"widths": np.array([2], np.int64), "uses": np.array([2], np.int64)}
    other = other.restored({**earlier, **plain.arrays})
    one = one.restored(other.state())
    expected = {name: array.tobytes() for name, array in plain.arrays.items()}
    assert everything(one) == everything(other) == [(3, expected)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("sizes"), "sizes is None"),
        (lambda state: state.update(sizes=state["sizes"][:-1]), "bytes for parts of"),
        (lambda state: state.update(uses=state["uses"][:-1]), "do not match"),
        (lambda state: state.update(encoded=255 - state["encoded"]), "zstd frame"),
        (lambda state: state["encoded"].__setitem__(-1, 255 - state["encoded"][-1]), "damaged"),
    ],
)
def test_damaged_images_are_refused_and_change_nothing(
    change: Callable[[dict[str, NDArray[np.generic]]], object], message: str
) -> None:
    state = {name: array.copy() for name, array in filled(stacked=True).state().items()}
    change(state)
    kept = filled(stacked=False)
    with pytest.raises(ValueError, match=message):
        kept.restored(state)
    assert everything(kept) == everything(filled(stacked=False))
