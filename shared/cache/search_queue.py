"""The queue of a search's round: parts of iterations, each taken by one actor.

It is a stream of Redis with one consumer per actor. A part that an actor has taken stays its own
until it is finished, released or taken over, so a call that is tried again begins with it. The
round's actors work for as long as the queue exists.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import redis

from shared.cache import keys, scripts
from shared.cache.connection import CacheUnreachableError
from shared.cache.first_wins import FirstWins

_ACTORS = "actors"
"""The stream's group of consumers."""
_PART = "part"
_MANY = 1000
_Entries = Sequence[tuple[bytes, dict[bytes, bytes]]]
_GONE = ("NOGROUP", "UNBLOCKED")
"""Servers' errors for a stream that does not exist, before and during a wait."""


class QueueClosedError(Exception):
    """There is no queue: the round is over, or the cache was emptied."""


@dataclass(frozen=True, slots=True)
class TakenPart:
    """A part of an iteration that an actor has taken."""

    number: int
    """In the round: iteration by iteration."""
    entry: bytes
    """Its place in the stream."""


class SearchQueue(FirstWins):
    """A connection with the operations on these queues."""

    # --- the learner's side -----------------------------------------------------------------

    def open_queue(self, job_id: str, round: int) -> None:
        """Create a round's empty queue, in place of an earlier one."""
        key = keys.queue(job_id, round)
        with self._errors("opening a queue"):
            pipeline = self._client.pipeline(transaction=True)
            pipeline.unlink(key)
            pipeline.xgroup_create(key, _ACTORS, id="0", mkstream=True)
            pipeline.pexpire(key, keys.TTL_MS)
            pipeline.execute()

    def require_queue(self, job_id: str, round: int) -> None:
        """Check that a round's queue exists.

        Raises:
            CacheUnreachableError: The cache has lost it.
        """
        if not self._run("EXISTS", keys.queue(job_id, round)):
            raise CacheUnreachableError(
                f"the trajectory cache lost the queue of round {round} of job {job_id}"
            )

    def queue_parts(self, job_id: str, round: int, numbers: Iterable[int]) -> None:
        """Add parts, to be taken in this order. One round trip."""
        queue = self._client.register_script(scripts.QUEUE_PARTS)
        with self._errors("queueing parts"):
            queue(keys=[keys.queue(job_id, round)], args=[keys.TTL_MS, _PART, *numbers])

    def release_parts(self, job_id: str, round: int, actors: Iterable[int]) -> list[int]:
        """Take the parts that these actors have not finished away from them, and return them."""
        key, parts = keys.queue(job_id, round), list[int]()
        # The learner notices a lost queue.
        with contextlib.suppress(QueueClosedError), self._open("releasing parts"):
            for actor in actors:
                waiting = self._client.xpending_range(
                    key, _ACTORS, min="-", max="+", count=_MANY, consumername=str(actor)
                )
                for each in cast("list[dict[str, bytes]]", waiting):
                    entry = each["message_id"]
                    parts += _numbers(self._client.xrange(key, min=entry, max=entry))
                    self._client.xack(key, _ACTORS, entry)
        return parts

    def close_queue(self, job_id: str, round: int) -> None:
        """Delete a round's queue: its actors end; harmless to repeat."""
        self._run("UNLINK", keys.queue(job_id, round))

    # --- an actor's side --------------------------------------------------------------------

    def take_part(
        self, job_id: str, round: int, *, actor_index: int, timeout_s: float
    ) -> TakenPart | None:
        """Take the next part; None if there is none before the time-out.

        Args:
            job_id: The job.
            round: Its round.
            actor_index: The actor.
            timeout_s: Longest wait. 0: take only a part that this actor has taken before and not
                finished, because it was killed or an answer of the cache was lost.

        Raises:
            QueueClosedError: There is no queue.
        """
        key = keys.queue(job_id, round)
        block_ms = max(1, int(1000 * min(timeout_s, self._block_s))) if timeout_s else None
        with self._open("taking a part"):
            reply = self._client.xreadgroup(
                _ACTORS,
                str(actor_index),
                {key: ">" if timeout_s else "0"},
                count=1,
                block=block_ms,
            )
        for _, entries in cast("list[tuple[bytes, object]]", reply or []):
            return _first(entries)
        return None

    def take_over_part(
        self, job_id: str, round: int, *, actor_index: int, after_s: float
    ) -> TakenPart | None:
        """Take a part that another actor took so long ago and has not finished; None without any.

        That actor may be dead or slow: two may play the part, and the first result counts.

        Raises:
            QueueClosedError: There is no queue.
        """
        after = b"0-0"
        while True:
            with self._open("taking over a part"):
                # One call looks at ten parts; the last of them answers 0-0.
                after, entries, *_ = self._client.xautoclaim(
                    keys.queue(job_id, round),
                    _ACTORS,
                    str(actor_index),
                    min_idle_time=int(1000 * after_s),
                    start_id=after,
                    count=1,
                )
            if entries or after == b"0-0":
                return _first(entries)

    def has_unfinished(self, job_id: str, round: int) -> bool:
        """Return whether any actor has a part that is not finished.

        Raises:
            QueueClosedError: There is no queue.
        """
        with self._open("reading unfinished parts"):
            waiting = self._client.xpending(keys.queue(job_id, round), _ACTORS)
        return bool(cast("dict[str, int]", waiting)["pending"])

    def finish_part(self, job_id: str, round: int, part: TakenPart) -> None:
        """Mark a part as finished: its result is stored."""
        with self._errors("finishing a part"):
            self._client.xack(keys.queue(job_id, round), _ACTORS, part.entry)

    @contextlib.contextmanager
    def _open(self, what: str) -> Iterator[None]:
        """Raise `QueueClosedError` if there is no queue, and otherwise as for any command."""
        with self._errors(what):
            try:
                yield
            except redis.ResponseError as error:
                if str(error).startswith(_GONE):
                    raise QueueClosedError(str(error)) from error
                raise


def _first(entries: object) -> TakenPart | None:
    for number, (entry, _) in zip(_numbers(entries), cast(_Entries, entries), strict=True):
        return TakenPart(number, entry)
    return None


def _numbers(entries: object) -> list[int]:
    return [int(fields[_PART.encode()]) for _, fields in cast(_Entries, entries)]
