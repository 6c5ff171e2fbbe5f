import random
from collections import deque

import pytest

from services.learner.rounds.streams import NEW, Streams


def names(round_index: int, actor: int, num_envs: int) -> list[bytes]:
    return [f"{round_index}/{actor}/{env}".encode() for env in range(num_envs)]


def play(streams: Streams, round_index: int, num_actors: int, num_envs: int = 1) -> list[bytes]:
    starts = streams.starts(round_index)
    streams.take(round_index, num_actors)
    for actor in range(num_actors):
        streams.leave(round_index, actor, names(round_index, actor, num_envs))
    streams.release(round_index)
    wanted = num_actors * num_envs
    return [*starts[:wanted], *[NEW] * (wanted - len(starts))]


@pytest.mark.parametrize("num_envs", [1, 3])
def test_a_round_takes_up_the_streams_that_waited_longest_and_opens_those_it_lacks(
    num_envs: int,
) -> None:
    rng = random.Random(0)
    streams, waiting = Streams(envs_per_actor=num_envs), deque[bytes]()
    for round_index in range(50):
        num_actors = rng.randint(1, 8)
        expected = [waiting.popleft() if waiting else NEW for _ in range(num_actors * num_envs)]
        assert play(streams, round_index, num_actors, num_envs) == expected
        for actor in range(num_actors):
            waiting.extend(names(round_index, actor, num_envs))


def test_a_round_of_few_actors_leaves_the_streams_of_many_alive() -> None:
    streams = Streams(envs_per_actor=1)
    play(streams, 0, 64)
    for round_index in range(1, 9):
        play(streams, round_index, 8)
    # Eight rounds of eight have been round all of them once.
    assert [s.split(b"/")[0] for s in play(streams, 9, 64)] == [
        str(1 + place // 8).encode() for place in range(64)
    ]


def test_a_lost_actors_stream_goes_on_from_where_it_was_left_before() -> None:
    streams = Streams(envs_per_actor=1)
    play(streams, 0, 3)
    streams.take(1, 3)
    streams.leave(1, 0, [b"a"])
    streams.leave(1, 2, [b"c"])
    streams.release(1)
    assert streams.starts(2) == (b"a", b"0/1/0", b"c")


def test_an_actor_that_brings_no_snapshots_leaves_its_streams_as_they_were() -> None:
    streams = Streams(envs_per_actor=2)
    play(streams, 0, 2, num_envs=2)
    before = streams.starts(1)
    streams.take(1, 2)
    streams.leave(1, 0, ())
    streams.leave(1, 1, [b"one too few"])
    streams.release(1)
    assert streams.starts(2) == before


def test_open_rounds_take_different_streams() -> None:
    streams = Streams(envs_per_actor=1)
    play(streams, 0, 4)
    streams.take(1, 2)
    assert streams.starts(2) == (b"0/2/0", b"0/3/0")
    streams.take(2, 3)
    streams.leave(2, 0, [b"used"])
    assert streams.starts(1)[:2] == (b"0/0/0", b"0/1/0")
    streams.release(1)
    assert streams.starts(3) == (b"0/0/0", b"0/1/0")
    streams.release(2)
    assert streams.starts(3) == (b"0/0/0", b"0/1/0", b"used", b"0/3/0", NEW)


def test_a_checkpoint_brings_back_waiting_streams_and_those_with_open_rounds() -> None:
    streams, loaded = Streams(envs_per_actor=1), Streams(envs_per_actor=1)
    play(streams, 0, 4)
    streams.take(1, 2)
    streams.leave(1, 1, [b"used"])
    loaded.load(streams.encode())
    assert loaded.starts(1) == streams.starts(1) == (b"0/0/0", b"used", b"0/2/0", b"0/3/0")
    assert loaded.starts(2) == (b"0/2/0", b"0/3/0")
    # Its plan may have been forgotten, and be of another size when it is made again.
    loaded.take(1, 3)
    assert loaded.starts(2) == (b"0/3/0",)


def test_bytes_that_are_no_streams_are_refused() -> None:
    with pytest.raises(ValueError, match="zstd"):
        Streams(envs_per_actor=1).load(b"no streams")
