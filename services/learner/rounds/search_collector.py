"""Collects the iterations of a search's round, one after the other.

An iteration's parts are queued, and the round's actors take them. A part that a failed actor had
taken, or that has no usable result, is queued once more. If it is lost again, it does not count.
Actors are launched again only once all have failed.
"""

import time
from collections.abc import Callable

from services.learner.rounds.collector import RoundCollector
from services.learner.rounds.results import read_part
from shared.cache.arrivals import FailureKind, Mode
from shared.cache.client import TrajectoryCache
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.rollouts import SearchTask
from shared.contracts.rounds import RoundPlan, TrajectoryCounts
from shared.trajectory.episode_sums import EpisodeSums, failure_in
from shared.trajectory.trajectory import Episode, Trajectory

_BLAMES: tuple[Mode, FailureKind] = ("search", "environment")


class SearchCollector(RoundCollector):
    """Receives the parts of one round; use it from one thread."""

    def __init__(
        self,
        cache: TrajectoryCache,
        plan: RoundPlan,
        environment: EnvironmentSpec,
        search: SearchTask,
        *,
        should_leave: Callable[[], bool],
        must_leave: Callable[[], bool],
    ) -> None:
        """Queue the parts of the first iteration that have no result yet.

        The queue must be open, and the round's policy published.

        Args:
            cache: The cache with the queue and the actors' results.
            plan: The round, as the scaler launched it.
            environment: Determines the form of results.
            search: The actors' search.
            should_leave: Ends the wait for parts.
            must_leave: Ends the wait for evaluation episodes.
        """
        self._search = search
        self._iteration = 0
        self._policy: bytes | None = None
        """The iteration's; None in the first, whose policy the round has."""
        self._sums: dict[int, EpisodeSums] = {}
        self._queued_again: set[int] = set()
        self._counted_out: set[int] = set()
        """Parts that were lost twice."""
        self._released: set[int] = set()
        """Failed actors whose parts were taken away from them."""
        super().__init__(
            cache,
            plan,
            environment,
            steps_per_actor=1,
            envs_per_actor=1,
            should_leave=should_leave,
            must_leave=must_leave,
        )
        if plan.num_actors:
            self._queue_parts()

    def next_iteration(self, policy: bytes) -> None:
        """Begin the next iteration with this policy."""
        self._iteration += 1
        self._sums = {}
        self._policy = policy
        self._deadline_at = time.monotonic() + self.plan.deadline_s
        self._publish()
        self._queue_parts()

    def prepare_reopening(self) -> None:
        """Reset the failures of actors so far, and begin a new queue of what is missing.

        Some actors may be slow rather than gone: a part that two of them play counts once.
        """
        super().prepare_reopening()
        self._released = set()
        if not self.incomplete:
            return  # only evaluation episodes are played again
        if self._policy is not None:
            self._publish()
        place = self.plan.job_id, self.plan.round
        self._cache.open_queue(*place)
        self._cache.queue_parts(
            *place, (n for n in self._numbers if not self._is_answered("search", n))
        )

    def trajectories(self) -> tuple[Trajectory, ...]:
        """Wait until the iteration is over, all actors have failed, or the deadline passes.

        Returns:
            The parts that have arrived, in order.
        """
        self._wait("search", self._numbers)
        while again := self._take_back_lost_parts():
            self._cache.queue_parts(self.plan.job_id, self.plan.round, again)
            self._wait("search", self._numbers)
        return self.fresh()

    def _take_back_lost_parts(self) -> list[int]:
        """Return the lost parts to queue again; those that are lost for good no longer count."""
        place, gone = (self.plan.job_id, self.plan.round), self._failed_actors - self._released
        self._released |= gone
        lost, vanished = self._lost_parts, set[int]()
        for actor in gone:
            parts = {*self._cache.release_parts(*place, (actor,))}
            lost |= parts
            if self._failed["sample", actor].kind == "vanished":
                vanished |= parts
        vanished |= {n for n in lost if self._kind_of(n) == "vanished"}
        lost &= {*self._numbers} - self._sums.keys()
        self._counted_out |= (lost & self._queued_again) - vanished
        again = sorted(lost - self._counted_out)
        self._queued_again |= {*again} - vanished
        self._cache.drop_results(*place, mode="search", actor_indices=again)
        for number in again:
            self._refused.discard(("search", number))
            self._failed.pop(("search", number), None)
        return again

    def after_silence(self) -> None:
        """Read again, and check that the cache did not lose the round or its queue.

        Raises:
            CacheUnreachableError: It did.
        """
        self.look_again()
        if self.incomplete:
            self._cache.require_policy(self.plan.job_id, self._version)
            self._cache.require_queue(self.plan.job_id, self.plan.round)

    def fresh(self) -> tuple[Trajectory, ...]:
        """Return the iteration's parts that have arrived, in order."""
        return tuple(self._sums[number] for number in sorted(self._sums))

    @property
    def used(self) -> frozenset[int]:
        """Parts of the iteration that have arrived."""
        return frozenset(self._sums)

    @property
    def incomplete(self) -> bool:
        """Whether a part of the iteration is missing that may still come."""
        return not all(self._is_answered("search", number) for number in self._numbers)

    @property
    def missing(self) -> tuple[int, ...]:
        """Indices of actors to launch again: all, once they have failed or the deadline passed."""
        everyone = range(self.plan.num_actors)
        over = self.remaining_s <= 0.0 or len(self._failed_actors) == len(everyone)
        return tuple(everyone) if over and self.incomplete else ()

    @property
    def vanished(self) -> bool:
        """Whether actors vanished that the iteration waits for."""
        return bool(self.missing) and super().vanished

    @property
    def usable(self) -> bool:
        """Whether as large a share of the parts has arrived as a quorum is of the actors."""
        return len(self._sums) >= self._needed

    @property
    def arrived(self) -> str:
        """How much of the iteration has arrived, for messages."""
        return f"{len(self._sums)} of {self._search.parts} parts of iteration {self._iteration}"

    @property
    def failures(self) -> tuple[str, ...]:
        """Distinct reasons for missing parts."""
        told = {str(why.failed) for (mode, _), why in self._failed.items() if mode != "evaluate"}
        return tuple(sorted(told)) or ("no answer",)

    @property
    def blaming(self) -> tuple[str, ...]:
        """Failures of actors and of parts that blame the environment."""
        return (*super().blaming, *(self._failed["search", n].failed or "" for n in self._blaming))

    @property
    def blamed(self) -> str:
        """How many results the environment prevented, for messages."""
        return f"{len(self._blaming)} of {self._search.parts} parts"

    @property
    def all_blaming(self) -> bool:
        """Whether too little has arrived, for the environment's fault."""
        return bool(self._blaming) and not self.usable

    @property
    def doomed(self) -> bool:
        """Whether the environment makes the round unusable: too many of its first parts failed."""
        if self._iteration or self._sums:
            return False
        if self._blaming:
            return self._search.parts - len(self._blaming) < self._needed
        return super().doomed

    def end(self) -> None:
        """Let the round's actors end."""
        self._cache.close_queue(self.plan.job_id, self.plan.round)

    def close(self) -> TrajectoryCounts:
        """Close the round and its queue, and count its actors: used ones have not failed."""
        job_id, first = self.plan.job_id, self.plan.policy_version
        self.end()
        self._cache.close_round(job_id, self.plan.round)
        self._cache.delete_policy(job_id, *range(first, first + self._iteration))
        launched = self.plan.num_actors
        lost = len(self._failed_actors)
        return TrajectoryCounts(
            launched=launched, used=launched - lost, late=0, duplicate=0, lost=lost
        )

    def _publish(self) -> None:
        assert self._policy is not None, "the round's first policy is published before it"
        self._cache.publish_policy(self.plan.job_id, self._version, self._policy)

    def _kind_of(self, number: int) -> FailureKind | None:
        """Return how a part has failed; None if it has not."""
        failed = self._failed.get(("search", number))
        return None if failed is None else failed.kind

    @property
    def _version(self) -> int:
        """The iteration's policy."""
        return self.plan.policy_version + self._iteration

    @property
    def _numbers(self) -> range:
        """Numbers of the iteration's parts."""
        first = self._iteration * self._search.parts
        return range(first, first + self._search.parts)

    @property
    def _needed(self) -> float:
        share = max(1, self.plan.quorum) / max(1, self.plan.num_actors)
        return max(1.0, share * self._search.parts)

    @property
    def _failed_actors(self) -> set[int]:
        return {index for mode, index in self._failed if mode == "sample"}

    @property
    def _lost_parts(self) -> set[int]:
        """Parts without a usable result."""
        return {index for mode, index in self._refused if mode == "search"} - self._counted_out

    @property
    def _blaming(self) -> list[int]:
        """Parts whose environment failed."""
        failed = self._failed.items()
        return sorted(n for (mode, n), why in failed if (mode, why.kind) == _BLAMES)

    @property
    def _stalled(self) -> bool:
        new = self._lost_parts or self._failed_actors - self._released
        return bool(new or self.missing or self.doomed)

    def _queue_parts(self) -> None:
        """Read the parts that an earlier learner had collected, and queue the others."""
        place = self.plan.job_id, self.plan.round
        wanted = [number for number in self._numbers if number not in self._sums]
        stored = self._cache.load_results(*place, mode="search", actor_indices=wanted)
        for number, payload in zip(wanted, stored, strict=True):
            if payload is not None:
                self._accept("search", number, payload)
        self._cache.queue_parts(*place, (n for n in wanted if n not in self._sums))

    def _is_answered(self, mode: Mode, index: int) -> bool:
        if mode != "search":
            return super()._is_answered(mode, index)
        return index in self._sums or index in self._counted_out

    def _accept(self, mode: Mode, index: int, payload: bytes | None) -> None:
        why = failure_in(payload) if payload is not None and mode == "search" else None
        if why is not None:
            self._refuse("search", index, why, kind="environment")
            return
        super()._accept(mode, index, payload)

    def _answers(self, mode: Mode) -> dict[int, Trajectory] | dict[int, Episode]:
        return self._sums if mode == "search" else super()._answers(mode)  # type: ignore[return-value]

    def _asked(self, mode: Mode) -> range:
        return self._numbers if mode == "search" else super()._asked(mode)

    def _store(self, mode: Mode, index: int, payload: bytes) -> None:
        if mode != "search":
            super()._store(mode, index, payload)
            return
        self._sums[index] = read_part(
            payload, self.plan, index, environment=self._environment, search=self._search
        )
