"""Streams: episodes that continue from round to round on any actors.

An episode belongs to a *stream*, not to an actor. A round takes the streams that have waited
longest, one for each environment of its actors, and opens new ones when there are too few. So a
round with few actors leaves some waiting, and a later round with many continues them.

A stream's *snapshot* arrives with its trajectory. The learner keeps it with the checkpoint and
publishes it for the next round, like the policy. Nothing depends on the actor or the order of
arrival. A relaunched actor starts from the same snapshots, a lost actor leaves its streams
unchanged, and an empty cache is refilled.
"""

from collections.abc import Sequence

from shared.trajectory import codec
from shared.trajectory.snapshots import joined, parted

NEW = b""
"""Snapshot of a stream that has yet to begin."""
_WAITING = "waiting"
_MAX_BYTES = 8 << 30
"""Limit for a checkpoint's streams, whose hash has been checked."""


class Streams:
    """A job's streams; each waits or belongs to a round."""

    def __init__(self, *, envs_per_actor: int) -> None:
        """Start without streams.

        Args:
            envs_per_actor: Streams an actor takes (B).
        """
        self._per_actor = envs_per_actor
        self._waiting: list[bytes] = []
        """Snapshots, longest waiting first."""
        self._taken: dict[int, list[bytes]] = {}
        """Snapshots of streams in rounds, by round."""

    def starts(self, round_index: int) -> tuple[bytes, ...]:
        """Return the initial snapshots of a round's actors: actor `i` from place `i * B` on.

        Further places begin with a reset.
        """
        return (*self._taken.get(round_index, ()), *self._waiting)

    def take(self, round_index: int, num_actors: int) -> None:
        """Assign streams to a round; a replanned round keeps its streams."""
        number = num_actors * self._per_actor
        starts = self.starts(round_index)
        self._taken[round_index] = [*starts[:number], *[NEW] * (number - len(starts))]
        self._waiting = list(starts[number:])

    def leave(self, round_index: int, actor_index: int, snapshots: Sequence[bytes]) -> None:
        """Keep the snapshots of one of a round's actors.

        Args:
            round_index: The round.
            actor_index: The actor, whose trajectory is used.
            snapshots: One for each of its environments. Otherwise its streams stay unchanged.
        """
        if len(snapshots) != self._per_actor:
            return
        first = actor_index * self._per_actor
        self._taken[round_index][first : first + self._per_actor] = snapshots

    def release(self, round_index: int) -> None:
        """Return a round's streams to the queue, in order of actors."""
        self._waiting += self._taken.pop(round_index)

    def encode(self) -> bytes:
        """Encode them for a checkpoint."""
        arrays: dict[str, codec.Array] = {}
        for name, snapshots in ((_WAITING, self._waiting), *self._taken.items()):
            arrays[f"{name}.bytes"], arrays[f"{name}.sizes"] = joined(snapshots)
        return codec.encode(arrays, {})

    def load(self, data: bytes) -> None:
        """Restore the state of `encode`.

        Raises:
            ValueError: The bytes are not Nitro's streams.
        """
        arrays = codec.decode(data, max_bytes=_MAX_BYTES).arrays
        names = [name.removesuffix(".sizes") for name in arrays if name.endswith(".sizes")]
        snapshots = {
            name: list(parted(arrays[f"{name}.bytes"], arrays[f"{name}.sizes"])) for name in names
        }
        self._waiting = snapshots.pop(_WAITING)
        self._taken = {int(name): of_round for name, of_round in snapshots.items()}
