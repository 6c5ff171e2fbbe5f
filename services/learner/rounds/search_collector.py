"""Collects the iterations of a search's round, one after the other.

An iteration's parts are queued, and the round's actors take them. A part that a failed actor had
taken, or that has no usable result, is queued again. A part that is lost too often is given up: the
iteration is closed without it, also by a learner that resumes. All other parts are waited for,
however slow the actors are. Actors are launched again only once all have failed, or no part has
arrived for a deadline.
"""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import partial

from services.learner.rounds.collector import RoundCollector
from services.learner.rounds.inbox import Inbox
from services.learner.rounds.results import read_part
from shared.cache.arrivals import Arrival, Mode
from shared.cache.client import TrajectoryCache
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.rollouts import SearchTask
from shared.contracts.rounds import RoundPlan, TrajectoryCounts
from shared.trajectory.episode_sums import GIVEN_UP, EpisodeSums
from shared.trajectory.trajectory import Episode, Trajectory

_LOG = logging.getLogger(__name__)
_MOST_FAULTS = 2
"""Tries of a part that end without a usable result, or in which the environment hangs: with the
same seed it would hang again.
"""
_MOST_DEATHS = 4
"""Actors that die otherwise while they play a part: kills are common, but it may be the part."""

_RENEWAL_S = 300.0
"""How often the queue and the policies of an iteration are renewed in the cache."""


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
        read = partial(read_part, environment=environment, search=search)

        def inbox(iteration: int) -> Inbox[EpisodeSums]:
            first = iteration * search.parts
            asked = range(first, first + search.parts)
            return Inbox(cache, plan, "search", read, asked=asked, retried=True)

        self._search = search
        self._iteration = 0
        self._inbox, self._parts = inbox, inbox(0)
        self._policy: bytes | None = None
        """The iteration's; None in the first, whose policy the round has."""
        self._faults, self._deaths = Counter[int](), Counter[int]()
        """By part."""
        self._released: set[int] = set()
        """Failed actors whose parts were taken away from them."""
        self._renewed_at = time.monotonic()
        self._advanced = False
        """Whether parts have arrived since the last launch or the iteration's begin."""
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
        self._parts = self._inbox(self._iteration)
        self._policy = policy
        self._advanced = False
        self._deadline_at = time.monotonic() + self.plan.deadline_s
        if self._iteration > 2:
            # Slow actors may still read the version before, and evaluations the round's first: the
            # cache has no room for the networks of all iterations.
            self._cache.delete_policy(self.plan.job_id, self._version - 2)
        self._publish()
        self._queue_parts()

    def prepare_reopening(self, missing: Collection[int]) -> None:
        """Reset the failures so far, and begin a new queue of what is missing.

        Some actors may be slow rather than gone: a part that two of them play counts once. If only
        episodes are played again, the actors and their queue go on.
        """
        super().prepare_reopening(missing)
        if not missing:
            return
        self._released = set()
        if self._policy is not None:
            self._publish()
        place = self.plan.job_id, self.plan.round
        self._cache.open_queue(*place)
        self._cache.queue_parts(*place, self._unanswered)

    def reopen(self, plan: RoundPlan, missing: Collection[int]) -> None:
        """Continue with another attempt at the same round, which has launched these actors."""
        self._advanced = False
        super().reopen(plan, missing)

    def take_in(self, arrivals: Iterable[Arrival]) -> None:
        """Record arrivals; every part that arrives begins the deadline anew."""
        before = len(self._parts.results)
        super().take_in(arrivals)
        if len(self._parts.results) == before:
            return
        now = time.monotonic()
        self._advanced = True
        self._deadline_at = now + self.plan.deadline_s
        if now - self._renewed_at >= _RENEWAL_S:
            # An iteration may last as long as it advances, longer than keys live.
            self._renewed_at = now
            versions = {self.plan.policy_version, self._version}
            self._cache.renew(self.plan.job_id, self.plan.round, *versions)

    def trajectories(self) -> tuple[Trajectory, ...]:
        """Wait until the iteration is over, all actors have failed, or the deadline passes.

        Returns:
            The parts that have arrived, in order.
        """
        self._wait(self._parts)
        while self._has_losses:
            self._take_back_lost_parts()
            self._wait(self._parts)
        return self._parts.in_order

    def _take_back_lost_parts(self) -> None:
        """Queue the lost parts again; those that are lost too often no longer count."""
        place, parts = (self.plan.job_id, self.plan.round), self._parts
        gone = self._failed_actors - self._released
        self._released |= gone
        refused, held = self._lost_parts, set[int]()
        self._faults.update(refused - {*parts.of_kind("vanished")})
        for actor in gone:
            unfinished = {*self._cache.release_parts(*place, (actor,))} & {*parts.asked}
            unfinished -= parts.results.keys()
            held |= unfinished
            kind = self._samples.failed[actor].kind
            if kind != "vanished":
                (self._deaths if kind == "lost" else self._faults).update(unfinished)
        lost = refused | held
        parts.counted_out |= {
            n for n in lost if self._faults[n] >= _MOST_FAULTS or self._deaths[n] >= _MOST_DEATHS
        }
        again = sorted(lost - parts.counted_out)
        parts.drop(parts.refused & {*again})
        for number in again:
            parts.failed.pop(number, None)
        self._cache.queue_parts(*place, again)

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
        """Close the iteration: return its parts in order, and give up those that are missing.

        A marker is stored in place of each missing part, so that a learner that resumes leaves out
        the same parts.
        """
        parts = self._parts
        missing = [n for n in parts.asked if n not in parts.results]
        if missing:
            _LOG.warning("parts given up", extra={"round": self.plan.round, "parts": len(missing)})
        while missing:
            parts.drop([n for n in missing if n in parts.refused])
            for number in missing:
                self._cache.store_result(
                    self.plan.job_id,
                    self.plan.round,
                    mode="search",
                    actor_index=number,
                    payload=GIVEN_UP,
                )
            # An actor may have been faster: its result counts if it can be used.
            parts.load(missing)
            missing = [n for n in missing if n in parts.refused]
        return parts.in_order

    @property
    def has_time(self) -> bool:
        """Whether the round's functions have time for an iteration of twice the mean duration.

        The age of the plan includes iterations that an earlier learner closed.
        """
        plan = self._launched_by
        alive_s = plan.age_s + time.monotonic() - self._launched_at
        needs_s = 2.0 * (self.plan.age_s + self.elapsed_s) / (self._iteration + 1)
        unlimited = not (plan.timeout_s and plan.function_actors)
        return unlimited or alive_s + needs_s <= plan.timeout_s

    @property
    def used(self) -> frozenset[int]:
        """Parts of the iteration that have arrived."""
        return frozenset(self._parts.results)

    @property
    def incomplete(self) -> bool:
        """Whether a part of the iteration is missing that may still come."""
        return not all(map(self._parts.is_answered, self._parts.asked))

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
    def advanced(self) -> bool:
        """Whether parts have arrived since the last launch: then another launch helps."""
        return self._advanced

    @property
    def usable(self) -> bool:
        """Whether nothing is missing that may still come, and enough has arrived.

        As large a share of the parts is enough as a quorum is of the actors.
        """
        return not self.incomplete and self._has_enough

    @property
    def arrived(self) -> str:
        """How much of the iteration has arrived, for messages."""
        arrived = len(self._parts.results)
        return f"{arrived} of {self._search.parts} parts of iteration {self._iteration}"

    @property
    def required(self) -> str:
        """How many parts the iteration needs, for messages."""
        return "all" if self.incomplete else f"{math.ceil(self._needed)}"

    @property
    def failures(self) -> tuple[str, ...]:
        """Distinct reasons for missing parts."""
        failed = (*self._samples.failed.values(), *self._parts.failed.values())
        told = {str(why.failed) for why in failed}
        return tuple(sorted(told)) or ("no answer",)

    @property
    def blaming(self) -> tuple[str, ...]:
        """Failures of actors and of parts that blame the environment."""
        return (*super().blaming, *(self._parts.failed[n].failed or "" for n in self._blaming))

    @property
    def blamed(self) -> str:
        """How many results the environment prevented, for messages."""
        return f"{len(self._blaming)} of {self._search.parts} parts"

    @property
    def all_blaming(self) -> bool:
        """Whether too little has arrived, for the environment's fault."""
        return bool(self._blaming) and not self._has_enough

    @property
    def doomed(self) -> bool:
        """Whether the environment makes the round unusable: too many of its first parts failed."""
        if self._iteration or self._parts.results:
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

    @property
    def _version(self) -> int:
        """The iteration's policy."""
        return self.plan.policy_version + self._iteration

    @property
    def _needed(self) -> float:
        share = max(1, self.plan.quorum) / max(1, self.plan.num_actors)
        return max(1.0, share * self._search.parts)

    @property
    def _has_enough(self) -> bool:
        return len(self._parts.results) >= self._needed

    @property
    def _failed_actors(self) -> set[int]:
        return {*self._samples.failed}

    @property
    def _lost_parts(self) -> set[int]:
        """Parts without a usable result."""
        return self._parts.refused - self._parts.counted_out

    @property
    def _blaming(self) -> list[int]:
        """Parts whose environment failed."""
        return self._parts.of_kind("environment")

    @property
    def _has_losses(self) -> bool:
        """Whether parts or actors were lost since lost parts were taken back."""
        return bool(self._lost_parts or self._failed_actors - self._released)

    @property
    def _stalled(self) -> bool:
        return self._has_losses or bool(self.missing) or self.doomed

    def _queue_parts(self) -> None:
        """Read the parts that an earlier learner had collected, and queue the others."""
        self._parts.load(self._unanswered, may_miss=True)
        self._cache.queue_parts(self.plan.job_id, self.plan.round, self._unanswered)

    @property
    def _unanswered(self) -> list[int]:
        """Parts that nobody has answered; refused ones are taken back."""
        parts = self._parts
        return [n for n in parts.asked if not (parts.is_answered(n) or n in parts.refused)]

    @property
    def _inboxes(self) -> dict[Mode, Inbox[Trajectory | Episode]]:
        return {**super()._inboxes, "search": self._parts}
