"""A job's rollouts on the learner's own cores, launched when the plan arrives.

Tasks, seeds and keys in the cache are the same as for functions, so the learner collects both
alike. A permanently failed task is announced in the cache, like the scaler's announcement of a
function's failure. No state is stored: a learner that resumes requests the plan again, and launches
the missing tasks.
"""

import importlib.util
import logging
import threading
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from statistics import fmean, median

from services.learner.own.actors import OwnActors, OwnOutcome
from shared.cache.client import TrajectoryCache
from shared.cache.connection import CacheError
from shared.contracts import rounds
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.contracts.rollouts import ActorReport
from shared.contracts.rounds import OwnWork, RoundPlan, RoundResult
from shared.hyperparameters.search import SearchHyperparameters
from shared.service.cores import usable_cores
from shared.trajectory.rollout_tasks import rollout_tasks

_LOG = logging.getLogger(__name__)
_REMEMBERED = 32
"""Number of rollouts whose times are reported."""
_NO_ENVIRONMENT = "UnsupportedEnvironment"
"""Failure of an actor that cannot build the environment here, although functions may be able to."""


def num_own_actors(spec: JobSpec, *, most: int | None = None) -> int:
    """Return the number of own actors of a job's learner; 0 without simulators.

    Args:
        spec: The job; older jobs have no field for own actors.
        most: Limit of this machine; None means one for each core.
    """
    asked = spec.actors.own or 0
    if not asked or importlib.util.find_spec("gymnasium") is None:
        return 0
    if asked == "auto":
        asked = usable_cores() if most is None else most
    return 0 if most == 0 else min(asked, max(spec.actors.max, spec.evaluation.episodes))


@dataclass(slots=True)
class _Tally:
    """A round's work on own cores so far."""

    began_at: float
    rollouts: int = 0
    episodes: int = 0
    lost: int = 0
    busy_s: float = 0.0
    elapsed_s: float = 0.0


class OwnRollouts:
    """A job's work on own cores; use it from one thread.

    Args:
        job: The leased job.
        lease_id: The lease of its rounds' plans.
        actors: The processes, for exclusive use.
        cache: Client to announce failures, for exclusive use.
    """

    def __init__(self, job: Job, lease_id: str, actors: OwnActors, cache: TrajectoryCache) -> None:
        self._job = job
        self._lease_id = lease_id
        self._actors = actors
        self._cache = cache
        self._lock = threading.Lock()
        self._tallies: dict[int, _Tally] = {}
        self._recent: deque[ActorReport] = deque(maxlen=_REMEMBERED)
        self._unable = False

    def offer(self) -> rounds.OwnActors | None:
        """Return the capacity for the next plan; None without any."""
        if self._unable:
            return None
        with self._lock:
            recent = [report for report in self._recent if report.steps]
        if not recent:
            return rounds.OwnActors(num=self._actors.num)
        return rounds.OwnActors(
            num=self._actors.num,
            step_s=fmean(report.rollout_s / report.steps for report in recent),
            call_s=median(max(0.0, report.total_s - report.rollout_s) for report in recent),
        )

    def told(self, previous: RoundResult | None) -> None:
        """Note the result of a round: it may end the job's replays."""
        progress = self._job.progress
        if previous is not None and previous.round >= progress.rounds:
            updated = {
                "rounds": previous.round + 1,
                "lost_replays": progress.lost_replays + previous.lost_replays,
            }
            progress = progress.model_copy(update=updated)
            self._job = self._job.model_copy(update={"progress": progress})

    def launch(
        self,
        plan: RoundPlan,
        missing: Collection[int] | None = None,
        missing_evaluations: Collection[int] | None = None,
    ) -> None:
        """Launch a plan's tasks on own cores.

        Args:
            plan: The round.
            missing: Actors to relaunch; None means all without an answer.
            missing_evaluations: Evaluation episodes to relaunch.
        """
        wanted = [("sample", i) for i in range(plan.own) if missing is None or i in missing]
        wanted += [
            ("evaluate", i)
            for i in range(plan.own_evaluations)
            if missing_evaluations is None or i in missing_evaluations
        ]
        if not wanted:
            return
        if missing is None:
            answered = self._answered(plan)
            wanted = [each for each in wanted if each not in answered]
        made = [
            *rollout_tasks(
                self._job,
                plan,
                lease_id=self._lease_id,
                samples=[index for mode, index in wanted if mode == "sample"],
                evaluations=[index for mode, index in wanted if mode == "evaluate"],
            )
        ]
        with self._lock:
            self._tallies.setdefault(plan.round, _Tally(time.monotonic()))
        # Like a function's, a task may run twice before the deadline, which each iteration has.
        rule, limit_s = self._job.hyperparameters, max(1.0, plan.deadline_s / 2.0)
        if isinstance(rule, SearchHyperparameters):
            limit_s *= rule.most_iterations
        self._actors.submit(made, self._ended, limit_s=limit_s)

    def work(self, round_index: int) -> OwnWork | None:
        """Return and drop a finished round's own work; None without any."""
        with self._lock:
            tally = self._tallies.pop(round_index, None)
        if tally is None:
            return None
        return OwnWork(
            rollouts=tally.rollouts,
            episodes=tally.episodes,
            lost=tally.lost,
            busy_s=tally.busy_s,
            elapsed_s=tally.elapsed_s,
        )

    def leave(self) -> None:
        """Drop unfinished tasks: the learner no longer waits for them."""
        self._actors.drop()
        self._cache.close()

    def _answered(self, plan: RoundPlan) -> set[tuple[str, int]]:
        with self._lock:
            arrivals = self._cache.answered(plan.job_id, plan.round)
        return {
            (each.mode, each.actor_index)
            for each in arrivals
            if each.failed is None or each.attempt >= plan.attempt
        }

    def _ended(self, outcome: OwnOutcome) -> None:
        """Count an ended task and announce a failed one. Runs in a process's thread."""
        task, report = outcome.task, outcome.report
        with self._lock:
            tally = self._tallies.get(task.round)
            if tally is not None:
                tally.lost += outcome.lost
                tally.busy_s += outcome.ended_at - outcome.began_at
                if task.mode == "sample":
                    tally.rollouts += 1
                    tally.elapsed_s = outcome.ended_at - tally.began_at
                else:
                    tally.episodes += 1
            if report is not None and task.mode == "sample" and not report.cold_start:
                self._recent.append(report)
        if report is None or report.outcome == "cancelled":
            self._announce(outcome)

    def _announce(self, outcome: OwnOutcome) -> None:
        task, kind = outcome.task, outcome.failure
        reason = outcome.reason or "the actor was cancelled"
        if outcome.error == _NO_ENVIRONMENT:
            self._unable, kind = True, "vanished"
        extra = {"job": task.job_id, "round": task.round, "actor": task.actor_index, "why": reason}
        _LOG.warning("own actor lost", extra={**extra, "mode": task.mode})
        try:
            with self._lock:
                self._cache.announce_failure(
                    task.job_id,
                    task.round,
                    mode=task.mode,
                    actor_index=task.actor_index,
                    attempt=task.attempt,
                    reason=reason,
                    kind=kind,
                )
        except CacheError as error:
            # The learner then waits until the round's deadline.
            _LOG.warning("lost own actor not announced", extra={**extra, "why": str(error)})
