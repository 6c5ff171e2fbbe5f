"""Collecting one round: what the actors put into the cache, until all is there or time is up.

The learner blocks on the round's arrivals list and never polls. A launch that failed for good is
announced on that list, so nobody waits for it. Payloads stay in the cache until the round is
closed: a learner that is killed and started again finds everything that had arrived.

A round is *complete* when every actor has answered, *usable* when at least a quorum has. Later
deliveries are refused by the cache and counted.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from shared.cache import Arrival, Mode, TrajectoryCache
from shared.codec import CodecError
from shared.contracts import RoundPlan, TrajectoryCounts
from shared.environment_spec import EnvironmentSpec
from shared.trajectory import (
    Episode,
    Trajectory,
    TrajectoryError,
    decode_episode,
    decode_trajectory,
)

_LOG = logging.getLogger(__name__)
_LONGEST_WAIT_S = 1.0
"""One blocking wait; between two of them the learner looks whether it should leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedRound:
    """What arrived of a round before its deadline."""

    trajectories: tuple[Trajectory, ...]
    """In the order of their actor index, whatever order they came in."""
    missing: tuple[int, ...]
    """Indices of actors that brought nothing usable."""
    failures: tuple[str, ...]
    """Distinct reasons given for what is missing."""


class RoundCollector:
    """Receives the results of one round; use it from one thread."""

    def __init__(
        self,
        cache: TrajectoryCache,
        plan: RoundPlan,
        environment: EnvironmentSpec,
        *,
        steps_per_actor: int,
        should_leave: Callable[[], bool],
    ) -> None:
        self._cache = cache
        self._plan = plan
        self._environment = environment
        self._steps = steps_per_actor
        self._should_leave = should_leave
        self._deadline_at = _deadline(plan)
        self._trajectories: dict[int, Trajectory] = {}
        self._episodes: dict[int, Episode] = {}
        self._failed: dict[tuple[Mode, int], str] = {}
        self._refused: set[tuple[Mode, int]] = set()
        self._absorb(cache.stored(plan.job_id, plan.round))

    def reopen(self, plan: RoundPlan) -> None:
        """Go on with another attempt at the same round: failures so far are forgotten."""
        self._failed = {key: why for key, why in self._failed.items() if key[0] == "evaluate"}
        self._refused = {key for key in self._refused if key[0] == "evaluate"}
        self._deadline_at = _deadline(plan)

    def trajectories(self) -> CollectedRound:
        """Wait until every actor of the round has answered, or the deadline has passed."""
        indices = range(self._plan.num_actors)
        self._wait("sample", indices)
        missing = tuple(i for i in indices if i not in self._trajectories)
        return CollectedRound(
            trajectories=tuple(self._trajectories[i] for i in sorted(self._trajectories)),
            missing=missing,
            failures=tuple(sorted({self._failed.get(("sample", i), "no answer") for i in missing})),
        )

    def episodes(self) -> tuple[Episode, ...]:
        """Wait for the evaluation episodes launched beside the round, in order of their index."""
        self._wait("evaluate", range(self._plan.num_evaluations))
        return tuple(self._episodes[i] for i in sorted(self._episodes))

    def close(self) -> TrajectoryCounts:
        """Close the round in the cache and account for every trajectory that was launched."""
        job_id, round_index = self._plan.job_id, self._plan.round
        counters = self._cache.close_round(job_id, round_index)
        arrived = {a.actor_index for a in self._cache.stored(job_id, round_index) if _sample(a)}
        used = len(self._trajectories)
        late = len(arrived - self._trajectories.keys()) + counters.late
        return TrajectoryCounts(
            launched=self._plan.num_actors,
            used=used,
            late=late,
            duplicate=counters.duplicate,
            lost=max(0, self._plan.num_actors - used - late),
        )

    def _wait(self, mode: Mode, indices: Iterable[int]) -> None:
        waiting = set(indices)
        while True:
            waiting -= self._answered(mode)
            remaining_s = self._deadline_at - time.monotonic()
            if not waiting or remaining_s <= 0 or self._should_leave():
                return
            arrivals = self._cache.wait_arrivals(
                self._plan.job_id, self._plan.round, timeout_s=min(remaining_s, _LONGEST_WAIT_S)
            )
            # After a silence, look at what is stored: a token can be lost with a connection.
            self._absorb(arrivals or self._cache.stored(self._plan.job_id, self._plan.round))

    def _answered(self, mode: Mode) -> set[int]:
        failed = {index for kind, index in self._failed if kind == mode}
        return failed.union(self._answers(mode))

    def _answers(self, mode: Mode) -> Mapping[int, Trajectory | Episode]:
        return self._trajectories if mode == "sample" else self._episodes

    def _absorb(self, arrivals: Iterable[Arrival]) -> None:
        stored: dict[Mode, list[int]] = {"sample": [], "evaluate": []}
        for arrival in arrivals:
            key = (arrival.mode, arrival.actor_index)
            # What was refused stays where it is, and costs as much to refuse again.
            if arrival.actor_index in self._answers(arrival.mode) or key in self._refused:
                continue
            if arrival.failed is None:
                stored[arrival.mode].append(arrival.actor_index)
            else:
                self._failed[key] = arrival.failed
        for mode, indices in stored.items():
            payloads = self._cache.load_results(
                self._plan.job_id, self._plan.round, mode=mode, actor_indices=indices
            )
            for index, payload in zip(indices, payloads, strict=True):
                self._accept(mode, index, payload)

    def _accept(self, mode: Mode, index: int, payload: bytes | None) -> None:
        try:
            if payload is None:
                raise TrajectoryError("the cache lost it (evicted or expired)")
            if mode == "sample":
                self._trajectories[index] = self._checked(index, payload)
            else:
                self._episodes[index] = decode_episode(payload)
        except (CodecError, TrajectoryError) as error:
            self._failed[(mode, index)] = f"refused: {error}"
            self._refused.add((mode, index))
            _LOG.warning(
                "result refused",
                extra={
                    "job": self._plan.job_id,
                    "round": self._plan.round,
                    "actor": index,
                    "why": str(error),
                },
            )

    def _checked(self, index: int, payload: bytes) -> Trajectory:
        trajectory = decode_trajectory(payload, environment=self._environment)
        identity = (
            trajectory.job_id,
            trajectory.round,
            trajectory.actor_index,
            trajectory.policy_version,
            trajectory.num_steps,
        )
        expected = (
            self._plan.job_id,
            self._plan.round,
            index,
            self._plan.policy_version,
            self._steps,
        )
        if identity != expected:
            raise TrajectoryError(
                f"(job, round, actor, policy version, steps) is {identity}, expected {expected}"
            )
        return trajectory


def _deadline(plan: RoundPlan) -> float:
    return time.monotonic() + max(0.0, plan.deadline_s - plan.age_s)


def _sample(arrival: Arrival) -> bool:
    return arrival.mode == "sample" and arrival.failed is None
