"""Collects one round's results from the cache, until all have arrived or time is up.

The learner blocks on the round's arrivals list and never polls. A permanently failed launch is
announced on that list, so the learner does not wait for it. Payloads stay in the cache until a
checkpoint has the round's outcome: a restarted learner finds everything that had arrived, even if
it had already closed the round.

A round is *complete* when every actor has answered, *usable* when at least a quorum has. It is
*doomed* when the environment fails in several actors: then the learner does not wait for the
others. Later deliveries are refused by the cache and counted.
"""

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from services.learner.rounds.results import read_episode, read_trajectory
from shared.cache.arrivals import Arrival, FailureKind, Mode
from shared.cache.client import TrajectoryCache
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.rounds import RoundPlan, TrajectoryCounts
from shared.trajectory.codec import CodecError
from shared.trajectory.trajectory import Episode, Trajectory, TrajectoryError

_LOG = logging.getLogger(__name__)
_MODES: tuple[Mode, ...] = ("sample", "search", "evaluate")
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
        self._environment = environment
        self._size = (steps_per_actor, envs_per_actor)
        self._state_size = state_size
        self._leave: dict[Mode, Callable[[], bool]] = {
            "sample": should_leave,
            "search": should_leave,
            "evaluate": must_leave,
        }
        self._taken = frozenset(taken)
        self._gather = gather
        self._handed_on: set[int] = set()
        self._opened_at = self._launched_at = time.monotonic()
        self._deadline_at = _deadline(plan)
        self._doomed_at = math.inf
        self.attempt = plan.attempt
        """The newest attempt at the round."""
        self._trajectories: dict[int, Trajectory] = {}
        self._episodes: dict[int, Episode] = {}
        self._failed: dict[tuple[Mode, int], Arrival] = {}
        self._refused: set[tuple[Mode, int]] = set()
        self._samples_over = False
        self.look_again()

    def prepare_reopening(self) -> None:
        """Reset the failures so far, and let the cache accept the refused results.

        Call it before the next attempt is launched.
        """
        # Failed episodes stay failed; vanished ones are relaunched.
        self._failed = {
            key: arrival
            for key, arrival in self._failed.items()
            if arrival.mode != "sample" and arrival.kind != "vanished"
        }
        relaunched = self._refused - self._failed.keys()
        for mode in _MODES:
            self._cache.drop_results(
                self.plan.job_id,
                self.plan.round,
                mode=mode,
                actor_indices=[index for of, index in relaunched if of == mode],
            )
        self._refused -= relaunched
        self._doomed_at = math.inf

    def reopen(self, plan: RoundPlan) -> None:
        """Continue with another attempt at the same round."""
        self._launched_at = time.monotonic()
        self._deadline_at = _deadline(plan)
        self.attempt = plan.attempt
        self.look_again()

    def trajectories(self) -> tuple[Trajectory, ...]:
        """Wait until every actor of the round has answered, or the deadline has passed.

        Returns:
            The trajectories in the order of the actors' indices.
        """
        self._wait("sample", range(self.plan.num_actors))
        return tuple(self._trajectories[i] for i in sorted(self._trajectories))

    @property
    def missing(self) -> tuple[int, ...]:
        """Indices of actors without a usable result."""
        return tuple(i for i in range(self.plan.num_actors) if i not in self.used)

    @property
    def incomplete(self) -> bool:
        """Whether a result is missing that may still come."""
        return bool(self.missing)

    @property
    def usable(self) -> bool:
        """Whether there is enough to learn from; never nothing, even with a quorum of 0."""
        return len(self.used) >= max(1, self.plan.quorum)

    @property
    def arrived(self) -> str:
        """How much of the round has arrived, for messages."""
        return f"{len(self.used)} of {self.plan.num_actors} trajectories"

    @property
    def failures(self) -> tuple[str, ...]:
        """Distinct reasons for missing results."""
        failed = [self._failed.get(("sample", index)) for index in self.missing]
        return tuple(sorted({"no answer" if why is None else str(why.failed) for why in failed}))

    @property
    def vanished(self) -> bool:
        """Whether actors vanished with a part of the system."""
        return any(a.mode == "sample" and a.kind == "vanished" for a in self._failed.values())

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
        indices = sorted(self._trajectories.keys() - self._handed_on)
        self._handed_on.update(indices)
        return tuple(self._trajectories[i] for i in indices)

    @property
    def used(self) -> frozenset[int]:
        """Actors whose trajectories were used, by this learner or before it."""
        return self._taken | self._trajectories.keys()

    @property
    def complete(self) -> bool:
        """Whether every actor and every evaluation episode has an outcome."""
        sampled = all(self._is_answered("sample", i) for i in range(self.plan.num_actors))
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
        blame = {
            arrival.actor_index: arrival.failed
            for arrival in self._failed.values()
            if arrival.mode == "sample" and arrival.kind in ("environment", "hung")
        }
        return tuple(why for _, why in sorted(blame.items()) if why is not None)

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
        self._samples_over = True
        self._wait("evaluate", range(self.plan.num_evaluations))
        if not self.all_episodes_answered:
            # An update may outlast the deadline while episodes arrive.
            self.look_again()
        return tuple(self._episodes[i] for i in sorted(self._episodes))

    @property
    def vanished_episodes(self) -> tuple[int, ...]:
        """Vanished evaluation episodes."""
        gone = [a for a in self._failed.values() if a.mode == "evaluate" and a.kind == "vanished"]
        return tuple(sorted(arrival.actor_index for arrival in gone))

    @property
    def all_episodes_answered(self) -> bool:
        """Whether every evaluation episode has arrived or failed."""
        episodes = range(self.plan.num_evaluations)
        return all(self._is_answered("evaluate", i) for i in episodes)

    def end(self) -> None:
        """Let actors end that would work on; nothing more is learned in this round."""

    def close(self) -> TrajectoryCounts:
        """Close the round in the cache and account for every launched trajectory."""
        job_id, round_index = self.plan.job_id, self.plan.round
        counters = self._cache.close_round(job_id, round_index)
        done = self._cache.answered(job_id, round_index)
        stored = {a.actor_index for a in done if a.mode == "sample" and a.failed is None}
        arrived = stored.intersection(range(self.plan.num_actors))
        refused = {index for mode, index in self._refused if mode == "sample"}
        used = len(self.used)
        late = len(arrived - refused - self.used) + counters.late
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

    def _wait(self, mode: Mode, indices: Sequence[int]) -> None:
        waiting = list(indices)
        more_there = False
        while True:
            # Check only the last one: not all of a thousand on every arrival.
            while waiting and self._is_answered(mode, waiting[-1]):
                waiting.pop()
            remaining_s = self.remaining_s
            if not waiting or remaining_s <= 0 or self._leave[mode]():
                return
            if mode != "evaluate" and self._stalled:
                return
            if not more_there and self._num_to_come(mode, len(indices)) > _MANY:
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

    def _num_to_come(self, mode: Mode, num_results: int) -> int:
        taken = self._taken if mode == "sample" else ()
        return num_results - len(taken) - len(self._answers(mode)) - len(self._failed)

    def _is_answered(self, mode: Mode, index: int) -> bool:
        taken = mode == "sample" and index in self._taken
        return taken or index in self._answers(mode) or (mode, index) in self._failed

    def _answers(self, mode: Mode) -> Mapping[int, Trajectory | Episode]:
        return self._episodes if mode == "evaluate" else self._trajectories

    def _asked(self, mode: Mode) -> range:
        """Return the indices of the results that are waited for."""
        asked = {"sample": self.plan.num_actors, "evaluate": self.plan.num_evaluations}
        return range(asked.get(mode, 0))

    def take_in(self, arrivals: Iterable[Arrival]) -> None:
        """Record arrivals of the round's actors, including those read by another waiter."""
        stored: dict[Mode, list[int]] = {mode: [] for mode in _MODES}
        for arrival in arrivals:
            if self._settled(arrival):
                continue
            if arrival.failed is None:
                stored[arrival.mode].append(arrival.actor_index)
            elif arrival.attempt >= self.attempt or (
                # Later attempts relaunch actors, but only vanished episodes.
                arrival.mode == "evaluate" and arrival.kind != "vanished"
            ):
                self._fail(arrival)
        for mode, indices in stored.items():
            payloads = self._cache.load_results(
                self.plan.job_id, self.plan.round, mode=mode, actor_indices=indices
            )
            for index, payload in zip(indices, payloads, strict=True):
                self._accept(mode, index, payload)

    def _fail(self, arrival: Arrival) -> None:
        self._failed[(arrival.mode, arrival.actor_index)] = arrival
        if arrival.kind == "hung":
            hung_after_s = time.monotonic() - self._launched_at
            at = self._launched_at + _PATIENCE_AFTER_HANG * hung_after_s
            self._doomed_at = min(self._doomed_at, at)

    def _settled(self, arrival: Arrival) -> bool:
        """Whether to ignore an arrival: answered, refused, late or never requested."""
        return (
            arrival.actor_index not in self._asked(arrival.mode)
            or (arrival.mode == "sample" and self._samples_over)
            or arrival.actor_index in self._answers(arrival.mode)
            or (arrival.mode == "sample" and arrival.actor_index in self._taken)
            or (arrival.mode, arrival.actor_index) in self._refused
        )

    def _accept(self, mode: Mode, index: int, payload: bytes | None) -> None:
        if payload is None:
            # The actor delivered it: a restarted cache must not change what is learned.
            self._refuse(mode, index, "the cache lost its result", kind="vanished")
            return
        try:
            self._store(mode, index, payload)
            self._failed.pop((mode, index), None)
        except (CodecError, TrajectoryError) as error:
            self._refuse(mode, index, f"refused: {error}")

    def _store(self, mode: Mode, index: int, payload: bytes) -> None:
        if mode == "evaluate":
            self._episodes[index] = read_episode(payload, self.plan, index)
            return
        self._trajectories[index] = read_trajectory(
            payload,
            self.plan,
            index,
            environment=self._environment,
            size=self._size,
            state_size=self._state_size,
        )

    def _refuse(self, mode: Mode, index: int, why: str, *, kind: FailureKind = "lost") -> None:
        self._refused.add((mode, index))
        self._failed[(mode, index)] = Arrival(mode, index, why, self.attempt, kind)
        identity = {"job": self.plan.job_id, "round": self.plan.round, "actor": index}
        _LOG.warning("result refused", extra={**identity, "mode": mode, "why": why})


def _deadline(plan: RoundPlan) -> float:
    return time.monotonic() + max(0.0, plan.deadline_s - plan.age_s)
