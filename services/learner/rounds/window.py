"""The rounds a job has open at a time, oldest first, and one wait for all of them.

Trajectories are handed on as they arrive, whichever round they are of. What was used of which round
is remembered, so that a learner that resumes from a checkpoint uses none twice and misses none.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator

from services.learner.record.checkpoint import OpenRound
from services.learner.rounds.collector import RoundCollector
from shared.cache.client import TrajectoryCache
from shared.contracts.jobs import Job
from shared.contracts.rounds import EvaluationResult, RoundPlan
from shared.trajectory.trajectory import Trajectory

_LOG = logging.getLogger(__name__)
_SILENCE_S = 1.0
"""After so long without an arrival the learner looks at what is stored."""
MOST_RELAUNCHES = 3
"""How often what vanished of a round is launched again: a part that ends each time needs repair."""


class OpenedRound:
    """One open round."""

    def __init__(self, plan: RoundPlan, collector: RoundCollector, before: OpenRound) -> None:
        """Begin where `before` says that an earlier learner left it."""
        self.plan = plan
        self.collector = collector
        self.state = before
        """What was used of it so far."""
        self._relaunches_left = MOST_RELAUNCHES

    @property
    def over(self) -> bool:
        """Whether nothing more is to be waited for."""
        return self.collector.complete or self.collector.remaining_s == 0.0

    def may_relaunch(self) -> bool:
        """Count a launch of what vanished; return whether it is one of those it may have."""
        self._relaunches_left -= 1
        return self._relaunches_left >= 0

    def evaluation(self) -> EvaluationResult | None:
        """Return what the episodes launched beside it came to; None when there are none.

        None, too, where they are still to come: those that end first are the short ones, and their
        mean would mislead. Where some are lost it is the mean of the others: the log tells of it.
        """
        collector, plan = self.collector, self.plan
        if not collector.all_episodes_answered and collector.remaining_s > 0.0:
            return None
        episodes = collector.episodes()
        if len(episodes) < plan.num_evaluations:
            _LOG.warning(
                "evaluation lacks episodes",
                extra={
                    "job": plan.job_id,
                    "round": plan.round,
                    "episodes": len(episodes),
                    "asked": plan.num_evaluations,
                },
            )
        if not episodes:
            return None
        return EvaluationResult(
            policy_version=plan.policy_version,
            returns=tuple(e.episode_return for e in episodes),
            lengths=tuple(e.length for e in episodes),
        )

    def fresh(self) -> tuple[Trajectory, ...]:
        """Return the trajectories that were not returned before, and count them as used."""
        trajectories = self.collector.fresh()
        if trajectories:
            state = self.state
            taken = (*state.taken, *(t.actor_index for t in trajectories))
            returns = (float(r) for t in trajectories for r in t.episode_returns)
            dropped = sum(t.dropped_episodes for t in trajectories)
            self.state = state.model_copy(
                update={
                    "taken": tuple(sorted(taken)),
                    "env_steps": state.env_steps + sum(t.num_steps for t in trajectories),
                    "episode_returns": (*state.episode_returns, *returns),
                    "dropped_episodes": state.dropped_episodes + dropped,
                }
            )
        return trajectories


def opened_round(
    cache: TrajectoryCache,
    job: Job,
    plan: RoundPlan,
    before: OpenRound,
    *,
    should_leave: Callable[[], bool],
    must_leave: Callable[[], bool],
) -> OpenedRound:
    """Return a round that was planned; what is stored of it is taken in at once.

    Args:
        cache: Where its actors put their results.
        job: Whose round it is.
        plan: As the scaler launched it.
        before: What was used of it by an earlier learner.
        should_leave: Ends the wait for trajectories.
        must_leave: Ends the wait for episodes.
    """
    collector = RoundCollector(
        cache,
        plan,
        job.described_environment,
        steps_per_actor=job.spec.steps_of(max(1, plan.num_actors)),
        envs_per_actor=job.spec.envs_per_actor,
        state_size=job.hyperparameters.state_size,
        should_leave=should_leave,
        must_leave=must_leave,
        taken=before.taken,
    )
    return OpenedRound(plan, collector, before)


class RoundWindow:
    """Open rounds, oldest first; use it from one thread."""

    def __init__(self, cache: TrajectoryCache, job: Job, *, must_leave: Callable[[], bool]) -> None:
        self._cache = cache
        self._job = job
        self._must_leave = must_leave
        self._rounds: deque[OpenedRound] = deque()
        self._heard_at = time.monotonic()

    def __iter__(self) -> Iterator[OpenedRound]:
        """Oldest first."""
        return iter(self._rounds)

    @property
    def oldest(self) -> OpenedRound:
        """The round that ends next."""
        return self._rounds[0]

    @property
    def newest(self) -> OpenedRound:
        """The round that was asked for last."""
        return self._rounds[-1]

    def open(self, plan: RoundPlan, before: OpenRound) -> None:
        """Add a round that was planned; what is stored of it is taken in at once."""
        leave = self._must_leave
        self._rounds.append(
            opened_round(self._cache, self._job, plan, before, should_leave=leave, must_leave=leave)
        )

    def close_oldest(self) -> OpenedRound:
        """Take the oldest round out."""
        return self._rounds.popleft()

    def arrivals(self, *, timeout_s: float) -> tuple[Trajectory, ...]:
        """Return the trajectories that arrived, waiting for some if there are none yet.

        Args:
            timeout_s: Longest wait; 0 only looks.

        Returns:
            By round and actor index; empty when there are none, also when a launch failed.
        """
        here = self._fresh()
        if here:
            return here
        self.listen(timeout_s=timeout_s)
        return self._fresh()

    def listen(self, *, timeout_s: float) -> None:
        """Wait for one arrival, at most so long, and hand nothing on."""
        by_round = {opened.plan.round: opened for opened in self._rounds}
        told = self._cache.wait_any_arrivals(
            self._job.job_id, tuple(by_round), timeout_s=min(timeout_s, _SILENCE_S)
        )
        if told is not None:
            self._heard_at = time.monotonic()
            by_round[told[0]].collector.take_in(told[1])
        elif time.monotonic() - self._heard_at >= _SILENCE_S:
            self._heard_at = time.monotonic()
            for opened in self._rounds:
                opened.collector.after_silence()

    def _fresh(self) -> tuple[Trajectory, ...]:
        return tuple(t for opened in self._rounds for t in opened.fresh())
