"""What the scaler writes into the trajectory cache, and reads there, about actors and rounds."""

import threading
from collections.abc import Iterable
from typing import Literal, Protocol

from shared.cache.arrivals import Arrival, FailureKind
from shared.cache.client import TrajectoryCache


class NoticeBoard(Protocol):
    """What the scaler writes into the trajectory cache."""

    def announce_failure(
        self,
        job_id: str,
        round: int,
        *,
        mode: Literal["sample", "evaluate"],
        actor_index: int,
        attempt: int,
        reason: str,
        kind: FailureKind,
    ) -> None:
        """Tell the learner not to wait for an actor."""

    def request_cancel(self, job_id: str, lease_hashes: Iterable[str]) -> None:
        """Ask a job's actors of some lease_hashes, and of no others, not to start any more."""

    def forget_rounds(self, job_id: str, rounds: Iterable[int]) -> None:
        """Remove every key of these rounds: they are made again."""

    def forget_job(
        self, job_id: str, *, rounds: Iterable[int], policy_versions: Iterable[int]
    ) -> None:
        """Remove every key of these rounds and policy versions, and the cancel mark."""

    def ping(self) -> None:
        """Raise `CacheError` unless the cache answers."""


class CacheBoard:
    """The `NoticeBoard` in the trajectory cache: one connection, shared by all threads in turn."""

    def __init__(self, cache: TrajectoryCache) -> None:
        self._cache = cache
        self._lock = threading.Lock()

    def announce_failure(
        self,
        job_id: str,
        round: int,
        *,
        mode: Literal["sample", "evaluate"],
        actor_index: int,
        attempt: int,
        reason: str,
        kind: FailureKind,
    ) -> None:
        """Tell the learner not to wait for an actor."""
        with self._lock:
            self._cache.announce_failure(
                job_id,
                round,
                mode=mode,
                actor_index=actor_index,
                attempt=attempt,
                reason=reason,
                kind=kind,
            )

    def answered(self, job_id: str, round: int) -> list[Arrival]:
        """Return every actor of a round that has brought its result, or of which it is told."""
        with self._lock:
            return self._cache.answered(job_id, round)

    def request_cancel(self, job_id: str, lease_hashes: Iterable[str]) -> None:
        """Ask a job's actors of some lease_hashes, and of no others, not to start any more."""
        with self._lock:
            self._cache.request_cancel(job_id, lease_hashes)

    def forget_rounds(self, job_id: str, rounds: Iterable[int]) -> None:
        """Remove every key of these rounds: they are made again."""
        with self._lock:
            self._cache.forget_rounds(job_id, rounds)

    def forget_job(
        self, job_id: str, *, rounds: Iterable[int], policy_versions: Iterable[int]
    ) -> None:
        """Remove every key of these rounds and policy versions, and the cancel mark."""
        with self._lock:
            self._cache.forget_job(job_id, rounds=rounds, policy_versions=policy_versions)

    def ping(self) -> None:
        """Raise `CacheError` unless the cache answers."""
        with self._lock:
            self._cache.ping()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._cache.close()
