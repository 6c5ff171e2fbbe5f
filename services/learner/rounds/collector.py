"""Collects one round's results from the cache, until all have arrived or time is up.

The learner blocks on the round's arrivals list and never polls. A permanently failed launch is
announced on that list, so the learner does not wait for it. Payloads stay in the cache until a
checkpoint has the round's outcome: a restarted learner finds everything that had arrived, even if
it had already closed the round.

A round is *complete* when every actor has answered, *usable* when at least a quorum has. It is
*doomed* when the environment fails in several actors: then the learner does not wait for the
others. Later deliveries are refused by the cache and counted.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable
from functools import partial

from services.learner.rounds.inbox import Inbox
from services.learner.rounds.results import read_episode, read_trajectory
from shared.cache.arrivals import Arrival, Mode
from shared.cache.client import TrajectoryCache
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.rounds import RoundPlan, TrajectoryCounts
from shared.trajectory.trajectory import Episode, Trajectory

_LONGEST_WAIT_S = 1.0
"""One blocking wait; between two waits the learner checks whether it should leave."""
_MOST = 256
"""Arrivals per read."""
_MANY = 128
"""While more than this many results are missing, each read follows a pause, so that one trip to the
cache returns several: two trips cost as much as reading a result. The last results are read without
a pause.
"""
_GATHERING_S = 0.01
"""Length of this pause."""
_WITNESSES = 2
"""Actors that must blame the environment before a round is doomed: a single failure may be bad
luck.
"""
_PATIENCE_AFTER_HANG = 1.75
"""How long to wait for others after the first hang, relative to it: a job whose environment hangs
then ends within twice the step time-out, although watchdogs may be 5 % late.
"""


class RoundCollector:
    """Receives the results of one round; use it from one thread."""

    def __init__(
        self,
        cache: TrajectoryCache,
        plan: RoundPlan,
        environment: EnvironmentSpec,
        *,
        steps_per_actor: int,
        envs_per_actor: int,
        should_leave: Callable[[], bool],
        must_leave: Callable[[], bool],
        taken: Collection[int] = (),
        gather: Callable[[float], object] = time.sleep,
        state_size: int = 0,
    ) -> None:
        """Read the results that are already there.

        Args:
            cache: The cache with the actors' results.
            plan: The round, as the scaler launched it.
            environment: Determines the form of trajectories.
            steps_per_actor: Steps in each trajectory.
            envs_per_actor: Environments in each trajectory.
            should_leave: Ends the wait for trajectories.
            must_leave: Ends the wait for episodes. A request to stop the job does not: short
                episodes end first, so their mean would be biased.
            taken: Actors whose trajectories were used before this learner resumed the round: they
                count as used and are not read again.
            gather: Waits for the given seconds while results arrive.
            state_size: Numbers of a recurrent policy's state.
        """
        self._cache = cache
        self.plan = plan
        """The round's first plan."""
        self._samples = Inbox(
            cache,
            plan,
            "sample",
            partial(
                read_trajectory,
                environment=environment,
                size=(steps_per_actor, envs_per_actor),
                state_size=state_size,
            ),
            asked=range(plan.num_actors),
            taken=taken,
        )
        self._evaluations = Inbox(
            cache, plan, "evaluate", read_episode, asked=range(plan.num_evaluations)
        )
        self._should_leave, self._must_leave = should_leave, must_leave
        self._gather = gather
        self._handed_on: set[int] = set()
        self._opened_at = self._launched_at = time.monotonic()
        self._deadline_at = _deadline(plan)
        self._doomed_at = math.inf
        self.attempt = plan.attempt
        """The newest attempt at the round."""
        self._launched_by = plan
        """The newest attempt that launched actors; others launch only episodes."""
        self.look_again()

    def prepare_reopening(self, missing: Collection[int]) -> None:
        """Reset the failures of what the next attempt launches: these actors and vanished episodes.

        The cache then accepts other results in place of refused ones.
        """
        for inbox in self._inboxes.values():
            # Failed episodes stay failed; vanished ones are relaunched.
            again = missing if inbox is self._samples else inbox.of_kind("vanished")
            inbox.failed = {n: why for n, why in inbox.failed.items() if n not in again}
            inbox.drop(inbox.refused - inbox.failed.keys())
        self._doomed_at = math.inf

    def reopen(self, plan: RoundPlan, missing: Collection[int]) -> None:
        """Continue with another attempt at the same round, which has launched these actors."""
        self._deadline_at = _deadline(plan)
        self.attempt = plan.attempt
        if missing:
            self._launched_by = plan
            self._launched_at = time.monotonic()
        self.look_again()

    def trajectories(self) -> tuple[Trajectory, ...]:
        """Wait until every actor of the round has answered, or the deadline has passed.

        Returns:
            The trajectories in the order of the actors' indices.
        """
        self._wait(self._samples)
        return self._samples.in_order

    @property
    def missing(self) -> tuple[int, ...]:
        """Indices of actors without a usable result."""
        used = self.used
        return tuple(i for i in range(self.plan.num_actors) if i not in used)

    @property
    def incomplete(self) -> bool:
        """Whether a result is missing that may still come."""
        return bool(self.missing)

    @property
    def usable(self) -> bool:
        """Whether there is enough to learn from; never nothing, even with a quorum of 0."""
        return len(self.used) >= max(1, self.plan.quorum)

    @property
    def advanced(self) -> bool:
        """Whether reopening helps as long as results arrive: a quorum has no use for more."""
        return False

    @property
    def arrived(self) -> str:
        """How much of the round has arrived, for messages."""
        return f"{len(self.used)} of {self.plan.num_actors} trajectories"

    @property
    def required(self) -> str:
        """How many trajectories the round needs, for messages."""
        return f"{max(1, self.plan.quorum)}"

    @property
    def failures(self) -> tuple[str, ...]:
        """Distinct reasons for missing results."""
        failed = [self._samples.failed.get(index) for index in self.missing]
        return tuple(sorted({"no answer" if why is None else str(why.failed) for why in failed}))

    @property
    def vanished(self) -> bool:
        """Whether actors vanished with a part of the system."""
        return bool(self._samples.of_kind("vanished"))

    def look_again(self) -> None:
        """Read the complete list of the round: an arrival's token can be lost with a connection."""
        self.take_in(self._cache.answered(self.plan.job_id, self.plan.round))

    def after_silence(self) -> None:
        """Read again, and check that the cache did not lose the round.

        Connections reopen silently, so only this detects a cache that restarted between two reads.

        Raises:
            CacheUnreachableError: It lost the round: awaited results were stored and are gone.
        """
        self.look_again()
        self._cache.require_policy(self.plan.job_id, self.plan.policy_version)

    def fresh(self) -> tuple[Trajectory, ...]:
        """Return the trajectories that were not returned before, in order of index."""
        found = self._samples.results
        indices = sorted(found.keys() - self._handed_on)
        self._handed_on.update(indices)
        return tuple(found[index] for index in indices)

    @property
    def used(self) -> frozenset[int]:
        """Actors whose trajectories were used, by this learner or before it."""
        return self._samples.taken | self._samples.results.keys()

    @property
    def complete(self) -> bool:
        """Whether every actor and every evaluation episode has an outcome."""
        sampled = all(map(self._samples.is_answered, self._samples.asked))
        return sampled and self.all_episodes_answered

    @property
    def remaining_s(self) -> float:
        """Time to the deadline, 0 once it has passed."""
        return max(0.0, self._deadline_at - time.monotonic())

    @property
    def elapsed_s(self) -> float:
        """Time since this learner began to collect the round."""
        return time.monotonic() - self._opened_at

    @property
    def blaming(self) -> tuple[str, ...]:
        """Failures of the actors that blame the environment, in order of index."""
        blaming = self._samples.of_kind("environment", "hung")
        return tuple(self._samples.failed[index].failed or "" for index in blaming)

    @property
    def blamed(self) -> str:
        """How many results the environment prevented, for messages."""
        return f"{len(self.blaming)} of {self.plan.num_actors} actors"

    @property
    def all_blaming(self) -> bool:
        """Whether every actor blames the environment."""
        return len(self.blaming) == self.plan.num_actors

    @property
    def doomed(self) -> bool:
        """Whether the environment makes the round unusable.

        No trajectory has arrived, and so many actors blame the environment that a quorum is
        impossible; or some hung, and nothing arrived for almost as long again. A relaunch with the
        same seeds would fail in the same way.
        """
        num_blaming = len(self.blaming)
        if self.used or num_blaming < _WITNESSES:
            return False
        short = self.plan.num_actors - num_blaming < max(1, self.plan.quorum)
        return short or time.monotonic() >= self._doomed_at

    def episodes(self) -> tuple[Episode, ...]:
        """Wait for the round's evaluation episodes, in order of index.

        Trajectories that arrive from now on are late.
        """
        self._samples.is_closed = True
        self._wait(self._evaluations)
        if not self.all_episodes_answered:
            # An update may outlast the deadline while episodes arrive.
            self.look_again()
        return self._evaluations.in_order

    @property
    def vanished_episodes(self) -> tuple[int, ...]:
        """Vanished evaluation episodes."""
        return tuple(self._evaluations.of_kind("vanished"))

    @property
    def all_episodes_answered(self) -> bool:
        """Whether every evaluation episode has arrived or failed."""
        return all(map(self._evaluations.is_answered, self._evaluations.asked))

    def end(self) -> None:
        """Let actors end that would work on; nothing more is learned in this round."""

    def close(self) -> TrajectoryCounts:
        """Close the round in the cache and account for every launched trajectory."""
        job_id, round_index = self.plan.job_id, self.plan.round
        counters = self._cache.close_round(job_id, round_index)
        done = self._cache.answered(job_id, round_index)
        stored = {a.actor_index for a in done if a.mode == "sample" and a.failed is None}
        arrived = stored.intersection(range(self.plan.num_actors))
        used = len(self.used)
        late = len(arrived - self._samples.refused - self.used) + counters.late
        # A replanned round may lack actors that were used, or late, before.
        known = self.used.union(range(self.plan.num_actors))
        launched = max(len(known), used + late)
        return TrajectoryCounts(
            launched=launched,
            used=used,
            late=late,
            duplicate=counters.duplicate,
            lost=launched - used - late,
        )

    def _wait(self, inbox: Inbox[Trajectory | Episode]) -> None:
        of_episodes = inbox is self._evaluations
        leave = self._must_leave if of_episodes else self._should_leave
        waiting = list(inbox.asked)
        more_there = False
        while True:
            # Check only the last one: not all of a thousand on every arrival.
            while waiting and inbox.is_answered(waiting[-1]):
                waiting.pop()
            remaining_s = self.remaining_s
            if not waiting or remaining_s <= 0 or leave():
                return
            if not of_episodes and self._stalled:
                return
            if not more_there and self._num_to_come(inbox) > _MANY:
                self._gather(min(_GATHERING_S, remaining_s))
            arrivals = self._cache.wait_arrivals(
                self.plan.job_id,
                self.plan.round,
                timeout_s=min(self.remaining_s, _LONGEST_WAIT_S),
                limit=_MOST,
            )
            more_there = len(arrivals) == _MOST
            if arrivals:
                self.take_in(arrivals)
            else:
                self.after_silence()

    @property
    def _stalled(self) -> bool:
        """Whether waiting for more results would be in vain."""
        return self.doomed

    def _num_to_come(self, inbox: Inbox[Trajectory | Episode]) -> int:
        failed = sum(len(each.failed) for each in self._inboxes.values())
        return len(inbox.asked) - len(inbox.taken) - len(inbox.results) - failed

    @property
    def _inboxes(self) -> dict[Mode, Inbox[Trajectory | Episode]]:
        return {"sample": self._samples, "evaluate": self._evaluations}

    def take_in(self, arrivals: Iterable[Arrival]) -> None:
        """Record arrivals of the round's actors, including those read by another waiter."""
        inboxes = self._inboxes
        stored: dict[Mode, list[int]] = {mode: [] for mode in inboxes}
        newest = dict.fromkeys(inboxes, self.attempt) | {"sample": self._launched_by.attempt}
        for arrival in arrivals:
            mode = arrival.mode
            if mode not in inboxes or inboxes[mode].ignores(arrival):
                continue
            if arrival.failed is None:
                stored[mode].append(arrival.actor_index)
            elif arrival.attempt >= newest[mode] or (
                # Later attempts relaunch actors, but only vanished episodes.
                mode == "evaluate" and arrival.kind != "vanished"
            ):
                inboxes[mode].failed[arrival.actor_index] = arrival
                self._note_hang(arrival)
        for mode, indices in stored.items():
            inboxes[mode].load(indices)

    def _note_hang(self, arrival: Arrival) -> None:
        if arrival.kind == "hung":
            hung_after_s = time.monotonic() - self._launched_at
            at = self._launched_at + _PATIENCE_AFTER_HANG * hung_after_s
            self._doomed_at = min(self._doomed_at, at)


def _deadline(plan: RoundPlan) -> float:
    return time.monotonic() + max(0.0, plan.deadline_s - plan.age_s)
