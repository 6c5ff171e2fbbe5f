"""The trajectory cache: where policies wait for actors and results wait for the learner.

Redis holds only bytes; `shared.trajectory` and `shared.policy` interpret them. This module needs
only redis-py, and commands of Redis 7.0.

Invariants: the first result of each (mode, actor index) of a round wins, regardless of the writer
and of repeats; nothing is stored in a closed round; a late or second trajectory is counted, never
silently dropped; every key has a lifetime; no operation reads more keys than its caller names.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from redis.typing import EncodableT

from shared.cache import arrivals, keys
from shared.cache.arrivals import Arrival, FailureKind, Mode, claim_field
from shared.cache.connection import CacheUnreachableError
from shared.cache.first_wins import LIMIT, StoreOutcome
from shared.cache.search_queue import SearchQueue

_NUM_STARTS = "number"
"""Field of a round's starts with the number of waiting streams."""
_BATCH = 1000
"""Rounds per request for keys."""


@dataclass(frozen=True, slots=True)
class RoundCounters:
    """Number of a round's trajectories that were not stored."""

    late: int
    """Arrived after the round was closed, first for their actor index."""
    duplicate: int
    """Arrived after another trajectory of the same actor index."""


class TrajectoryCache(SearchQueue):
    """A client of the cache with one connection."""

    # --- policies ---------------------------------------------------------------------------

    def publish_policy(self, job_id: str, policy_version: int, payload: bytes) -> None:
        """Make one version's weights available to actors."""
        self._run("SET", keys.policy(job_id, policy_version), payload, "PX", keys.TTL_MS)

    def fetch_policy(self, job_id: str, policy_version: int) -> bytes | None:
        """Return one version's weights, or None if the cache does not have them."""
        return cast("bytes | None", self._run("GET", keys.policy(job_id, policy_version)))

    def require_policy(self, job_id: str, policy_version: int) -> None:
        """Check that the cache still holds a published policy.

        Raises:
            CacheUnreachableError: The cache was emptied, so all stored results are lost as well.
        """
        if not self._run("EXISTS", keys.policy(job_id, policy_version)):
            raise CacheUnreachableError(
                f"the trajectory cache lost policy {policy_version} of job {job_id}, and with it "
                "what actors had stored; a cache that was started again is empty"
            )

    def renew(self, job_id: str, round: int, *policy_versions: int) -> None:
        """Let a search's queue and these policies live as long again. One round trip."""
        named = [keys.queue(job_id, round), *(keys.policy(job_id, v) for v in policy_versions)]
        with self._errors("renewing keys"):
            pipeline = self._client.pipeline(transaction=False)
            for key in named:
                pipeline.pexpire(key, keys.TTL_MS)
            pipeline.execute()

    def delete_policy(self, job_id: str, *policy_versions: int) -> None:
        """Delete these versions' weights."""
        self._unlink([keys.policy(job_id, version) for version in policy_versions])

    # --- episodes that continue -------------------------------------------------------------

    def publish_starts(self, job_id: str, round: int, snapshots: Sequence[bytes]) -> None:
        """Publish the snapshots that a round's actors resume, by place. One round trip.

        Empty snapshots, and places after the last snapshot, start over.
        """
        key = keys.starts(job_id, round)
        fields: dict[EncodableT, EncodableT] = {_NUM_STARTS: len(snapshots)}
        fields |= {str(place): left for place, left in enumerate(snapshots) if left}
        with self._errors("publishing starts"):
            pipeline = self._client.pipeline(transaction=True)
            pipeline.delete(key)
            # Without this field, new streams would look like a lost hash.
            pipeline.hset(key, mapping=fields)
            pipeline.pexpire(key, keys.TTL_MS)
            pipeline.execute()

    def fetch_starts(self, job_id: str, round: int, places: Sequence[int]) -> list[bytes] | None:
        """Return the snapshots at these places; an empty snapshot starts over.

        Return None if the cache does not have the round's snapshots.
        """
        fields = (_NUM_STARTS, *map(str, places))
        number, *snapshots = cast(
            "list[bytes | None]", self._run("HMGET", keys.starts(job_id, round), *fields)
        )
        return None if number is None else [snapshot or b"" for snapshot in snapshots]

    def forget_starts(self, job_id: str, round: int) -> None:
        """Delete a round's published starts."""
        self._run("UNLINK", keys.starts(job_id, round))

    # --- an actor's side of a round ---------------------------------------------------------

    def store_result(
        self, job_id: str, round: int, *, mode: Mode, actor_index: int, payload: bytes
    ) -> StoreOutcome:
        """Store an actor's result, unless another is there or the round is closed. One round trip.

        Returns:
            `stored`, `duplicate` (another result of this mode and index was first) or `late` (the
            round is closed). The last two drop the payload and count trajectories.
        """
        claim = claim_field(mode, actor_index)
        late = f"late-{actor_index}" if mode == "sample" else ""
        result = keys.result(job_id, round, mode, actor_index)
        round_keys = keys.claims(job_id, round), result, keys.arrivals(job_id, round)
        return self._store_first(*round_keys, claim=claim, payload=payload, late=late)

    def announce_failure(
        self,
        job_id: str,
        round: int,
        *,
        mode: Mode,
        actor_index: int,
        attempt: int,
        reason: str,
        kind: FailureKind = "lost",
    ) -> None:
        """Tell the learner not to wait for an actor in this attempt at a round.

        It has no effect once the actor's result is stored.
        """
        token = arrivals.failure_token(mode, actor_index, attempt=attempt, reason=reason, kind=kind)
        round_keys = keys.claims(job_id, round), keys.arrivals(job_id, round)
        self._announce_lost(*round_keys, claim=claim_field(mode, actor_index), token=token)

    # --- the learner's side of a round ------------------------------------------------------

    def wait_arrivals(
        self, job_id: str, round: int, *, timeout_s: float, limit: int = LIMIT
    ) -> list[Arrival]:
        """Block until an actor is done; return up to `limit` arrivals, each only once.

        They are in order of arrival; after `timeout_s` the list is empty. A token can be lost with
        its connection: before giving up an actor, compare with `answered`.
        """
        told = self.wait_any_arrivals(job_id, (round,), timeout_s=timeout_s, limit=limit)
        return told[1] if told is not None else []

    def wait_any_arrivals(
        self, job_id: str, rounds: Sequence[int], *, timeout_s: float, limit: int = LIMIT
    ) -> tuple[int, list[Arrival]] | None:
        """Block until an actor of any of these rounds is done; see `wait_arrivals`.

        Return the first of the given rounds that has arrivals, with these arrivals, if any.
        """
        names = {keys.arrivals(job_id, round): round for round in rounds}
        told = self._wait_tokens([*names], timeout_s=timeout_s, limit=limit)
        return None if told is None else (names[told[0]], arrivals.arrivals_of(told[1]))

    def answered(self, job_id: str, round: int) -> list[Arrival]:
        """Return all finished actors, reported or not, for a learner that resumes a round."""
        return arrivals.answered(self._fields(job_id, (round,))[0])

    def load_results(
        self, job_id: str, round: int, *, mode: Mode, actor_indices: Sequence[int]
    ) -> list[bytes | None]:
        """Return the results of these actors, None for a missing result. One round trip."""
        if not actor_indices:
            return []
        names = [keys.result(job_id, round, mode, index) for index in actor_indices]
        return cast("list[bytes | None]", self._run("MGET", *names))

    def drop_results(
        self, job_id: str, round: int, *, mode: Mode, actor_indices: Sequence[int]
    ) -> None:
        """Delete these actors' results, so that each actor can store another."""
        if not actor_indices:
            return
        self._unlink([keys.result(job_id, round, mode, index) for index in actor_indices])
        # Claims go last, so that a result stored from here on is complete.
        fields = [claim_field(mode, index) for index in actor_indices]
        self._run("HDEL", keys.claims(job_id, round), *fields)

    def close_round(self, job_id: str, round: int) -> RoundCounters:
        """Close a round to further results; return its counters; harmless to repeat.

        Its results stay until they are freed.
        """
        self._close_claims(keys.claims(job_id, round))
        return self.round_counters(job_id, round)

    def free_round(self, job_id: str, round: int) -> None:
        """Free the results of a closed round; harmless to repeat.

        The claims stay until they expire, so that a late result can be recognised.
        """
        results = _result_keys(job_id, round, self._fields(job_id, (round,))[0])
        self._unlink([*results, keys.starts(job_id, round), keys.queue(job_id, round)])

    def round_counters(self, job_id: str, round: int) -> RoundCounters:
        """Return how many of a round's trajectories have been late or duplicate so far."""
        late, duplicate = cast(
            "tuple[bytes | None, bytes | None]",
            self._run("HMGET", keys.claims(job_id, round), "late", "duplicate"),
        )
        return RoundCounters(late=int(late or 0), duplicate=int(duplicate or 0))

    # --- a job's end ------------------------------------------------------------------------

    def request_cancel(self, job_id: str, lease_hashes: Iterable[str]) -> None:
        """Ask a job's actors that were launched under these leases not to start any more."""
        self._run("SET", keys.cancel(job_id), " ".join(lease_hashes), "PX", keys.TTL_MS)

    def is_cancelled(self, job_id: str, lease_hash: str) -> bool:
        """Return whether a job's actors under a lease were asked not to start."""
        lease_hashes = cast("bytes | None", self._run("GET", keys.cancel(job_id)))
        return lease_hash.encode() in (lease_hashes or b"").split()

    def forget_rounds(self, job_id: str, rounds: Iterable[int]) -> None:
        """Delete all keys of these rounds, which are repeated, except for starts and queues.

        Both are published before every request for a round, and replaced each time.
        """
        wanted = iter(rounds)
        while batch := list(itertools.islice(wanted, _BATCH)):
            names: list[str] = []
            for index, fields in zip(batch, self._fields(job_id, batch), strict=True):
                names += [keys.claims(job_id, index), *_result_keys(job_id, index, fields)]
            self._unlink(names)

    def forget_job(
        self, job_id: str, *, rounds: Iterable[int], policy_versions: Iterable[int]
    ) -> None:
        """Delete all keys of these rounds and policy versions, and the cancel mark."""
        made = list(rounds)
        self.forget_rounds(job_id, made)
        self._unlink([name(job_id, index) for name in (keys.starts, keys.queue) for index in made])
        self._unlink([keys.cancel(job_id), *(keys.policy(job_id, v) for v in policy_versions)])

    def memory(self) -> tuple[int, str]:
        """Return the bytes in use by the cache, and the server's version.

        Raises:
            CacheError: The cache cannot be reached, or refuses this user.
        """
        with self._errors("INFO"):
            told = cast("dict[str, object]", self._client.info())
        return int(str(told.get("used_memory", 0))), str(told.get("redis_version", "unknown"))

    def _fields(self, job_id: str, rounds: Sequence[int]) -> list[list[bytes]]:
        """Return the fields of each round: claims, failures and the names of counters."""
        with self._errors("HKEYS"):
            pipeline = self._client.pipeline(transaction=False)
            for index in rounds:
                pipeline.hkeys(keys.claims(job_id, index))
            return cast("list[list[bytes]]", pipeline.execute())


def _result_keys(job_id: str, round: int, fields: Iterable[bytes]) -> list[str]:
    results = [
        keys.result(job_id, round, actor.mode, actor.actor_index)
        for actor in arrivals.answered(fields)
        if actor.failed is None
    ]
    return [keys.arrivals(job_id, round), *results]
