"""A job's open rounds, oldest first, with a single wait for all of them.

Trajectories of all rounds are handed on as they arrive. Used ones are recorded by round, so that a
learner that resumes uses none twice and misses none.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator

from services.learner.record.checkpoint import OpenRound
from services.learner.rounds.collector import RoundCollector
from services.learner.rounds.search_collector import SearchCollector
from shared.cache.client import TrajectoryCache
from shared.contracts.jobs import Job
from shared.contracts.rounds import EvaluationResult, RoundPlan
from shared.trajectory.rollout_tasks import search_task
from shared.trajectory.trajectory import Trajectory

_LOG = logging.getLogger(__name__)
_SILENCE_S = 1.0
"""Silence after which the learner reads the stored results."""
MOST_RELAUNCHES = 3
"""Most relaunches of a round's vanished actors: repeated losses need a repair."""


class OpenedRound:
    """One open round."""

    def __init__(self, plan: RoundPlan, collector: RoundCollector, before: OpenRound) -> None:
        """Continue from an earlier learner's state `before`."""
        self.plan = plan
        self.collector = collector
        self.state = before
        """Used trajectories so far."""
        self._relaunches_left = MOST_RELAUNCHES

    @property
    def over(self) -> bool:
        """Whether there is nothing left to wait for."""
        return self.collector.complete or self.collector.remaining_s == 0.0

    def may_relaunch(self) -> bool:
        """Count a relaunch; return whether it is within the limit."""
        self._relaunches_left -= 1
        return self._relaunches_left >= 0

    def evaluation(self) -> EvaluationResult | None:
        """Return the round's evaluation; None without one.

        None also while episodes are missing: short ones end first, so their mean would be biased.
        If some are lost, it is the mean of the others, with a log line.
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
    """Return a planned round with its stored results.

    Args:
        cache: Where its actors put their results.
        job: Whose round it is.
        plan: As the scaler launched it.
        before: Trajectories used by an earlier learner.
        should_leave: Ends the wait for trajectories.
        must_leave: Ends the wait for episodes.
    """
    environment, search = job.described_environment, search_task(job)
    collector: RoundCollector
    if search is not None:
        collector = SearchCollector(
            cache, plan, environment, search, should_leave=should_leave, must_leave=must_leave
        )
        return OpenedRound(plan, collector, before)
    collector = RoundCollector(
        cache,
        plan,
        environment,
        steps_per_actor=job.spec.steps_of(max(1, plan.num_actors)),
        envs_per_actor=job.spec.envs_per_actor,
        state_size=job.hyperparameters.state_size,
        taken=before.taken,
        should_leave=should_leave,
        must_leave=must_leave,
    )
    return OpenedRound(plan, collector, before)


class RoundWindow:
    """Open rounds, oldest first; use it from one thread."""

    def __init__(self, cache: TrajectoryCache, job_id: str) -> None:
        self._cache = cache
        self._job_id = job_id
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
        """The last requested round."""
        return self._rounds[-1]

    def add(self, opened: OpenedRound) -> None:
        """Add a round as the newest."""
        self._rounds.append(opened)

    def close_oldest(self) -> OpenedRound:
        """Remove the oldest round."""
        return self._rounds.popleft()

    def arrivals(self, *, timeout_s: float) -> tuple[Trajectory, ...]:
        """Return arrived trajectories, waiting for some if there are none.

        Args:
            timeout_s: Longest wait; 0 does not wait.

        Returns:
            By round and actor index; empty when there are none, also when a launch failed.
        """
        here = self._fresh()
        if here:
            return here
        self._listen(timeout_s=timeout_s)
        return self._fresh()

    def _listen(self, *, timeout_s: float) -> None:
        """Wait for one arrival, up to a time-out."""
        by_round = {opened.plan.round: opened for opened in self._rounds}
        told = self._cache.wait_any_arrivals(
            self._job_id, tuple(by_round), timeout_s=min(timeout_s, _SILENCE_S)
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
