"""Episodes that go on from round to round, whichever actors they pass through.

An episode belongs to a *stream*, not to an actor. A round takes the streams that have waited
longest, one for each environment of its actors, and opens new ones when there are too few. So a
round of few actors leaves some waiting, and a later one of many finds them again.

What an actor left of a stream, its *snapshot*, comes with its trajectory. The learner keeps it with
the checkpoint and publishes it for the next round, like the policy. Nothing depends on who ran what
and in which order it came: an actor that is launched again starts from the same snapshots, one that
is lost leaves its streams as they were, and a cache that lost everything is told again.
"""

from collections.abc import Sequence

from shared.trajectory import codec
from shared.trajectory.snapshots import joined, parted

NEW = b""
"""Snapshot of a stream that has yet to begin."""
_WAITING = "waiting"
_MAX_BYTES = 8 << 30
"""Of a checkpoint's streams: its hash has been checked, so they are ours."""


class Streams:
    """A job's streams; each waits, or is with a round."""

    def __init__(self, *, envs_per_actor: int) -> None:
        """Start with none.

        Args:
            envs_per_actor: Streams an actor takes (B).
        """
        self._per_actor = envs_per_actor
        self._waiting: list[bytes] = []
        """Snapshots, the longest waiting first."""
        self._taken: dict[int, list[bytes]] = {}
        """Snapshots of those that are with a round, by round."""

    def starts(self, round_index: int) -> tuple[bytes, ...]:
        """Return the snapshots a round's actors start from: actor `i` from place `i * B` on.

        Places beyond the last begin anew.
        """
        return (*self._taken.get(round_index, ()), *self._waiting)

    def take(self, round_index: int, num_actors: int) -> None:
        """Give a round its streams; one that is planned again keeps those it has."""
        number = num_actors * self._per_actor
        starts = self.starts(round_index)
        self._taken[round_index] = [*starts[:number], *[NEW] * (number - len(starts))]
        self._waiting = list(starts[number:])

    def leave(self, round_index: int, actor_index: int, snapshots: Sequence[bytes]) -> None:
        """Keep where one of a round's actors left its streams.

        Args:
            round_index: The round.
            actor_index: The actor, whose trajectory is used.
            snapshots: One for each of its environments. Of an actor that brought others, the
                streams stay as they were.
        """
        if len(snapshots) != self._per_actor:
            return
        first = actor_index * self._per_actor
        self._taken[round_index][first : first + self._per_actor] = snapshots

    def release(self, round_index: int) -> None:
        """Let a round's streams wait again, those of its first actor first."""
        self._waiting += self._taken.pop(round_index)

    def encode(self) -> bytes:
        """Return them as bytes for a checkpoint."""
        arrays: dict[str, codec.Array] = {}
        for name, snapshots in ((_WAITING, self._waiting), *self._taken.items()):
            arrays[f"{name}.bytes"], arrays[f"{name}.sizes"] = joined(snapshots)
        return codec.encode(arrays, {})

    def load(self, data: bytes) -> None:
        """Go back to where `encode` was called.

        Raises:
            ValueError: These are no streams of ours.
        """
        arrays = codec.decode(data, max_bytes=_MAX_BYTES).arrays
        names = [name.removesuffix(".sizes") for name in arrays if name.endswith(".sizes")]
        snapshots = {
            name: list(parted(arrays[f"{name}.bytes"], arrays[f"{name}.sizes"])) for name in names
        }
        self._waiting = snapshots.pop(_WAITING)
        self._taken = {int(name): of_round for name, of_round in snapshots.items()}
