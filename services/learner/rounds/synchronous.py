"""Training one job, round by round.

    publish policy v ──▶ ask the scaler for round k ──▶ collect ──▶ update ──▶ measure curvature
          ▲                (plan: actors, deadline,        │                          │
          │                 quorum, or why to stop)        ▼                          ▼
          └───────────── checkpoint ◀── record ◀── evaluation episodes, close the round

    | step       | waits for                        | who ends the wait                   |
    |------------|----------------------------------|-------------------------------------|
    | ask        | the scaler's answer              | the scaler; patience when it is gone|
    | collect    | one answer per launched actor    | actors, the scaler for failed ones, |
    |            |                                  | the deadline, a stop or lost lease  |
    | evaluation | the episodes of this round       | the same, but for a stop            |

The learner decides nothing about scaling: it reports curvature and results, and does what the plan
says. A round counts only once its checkpoint is written; whatever breaks before that costs this
round at most, because asking for it again returns the same plan and the same seeds. So nothing of
a round is removed from the cache before its checkpoint.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from learning.algorithms.algorithm import Algorithm, OffPolicyAlgorithm
from learning.detectors.detector import Detector, Measurement
from services.learner.record.checkpoint import Checkpoint, CheckpointStore, RunState
from services.learner.record.run_record import RunRecord
from services.learner.rounds.collector import CollectedRound, RoundCollector
from services.learner.rounds.lost_round import environment_failed, round_lost
from services.learner.scaler.client import ScalerClient
from services.learner.scaler.held_lease import HeldLease
from shared.cache.client import TrajectoryCache
from shared.contracts.jobs import Job, StopReason
from shared.contracts.rounds import (
    EvaluationResult,
    RoundLine,
    RoundPlan,
    RoundRequest,
    RoundResult,
    RoundTiming,
)
from shared.trajectory import codec
from shared.trajectory.trajectory import Episode

_LOG = logging.getLogger(__name__)


class LeftEarly(Exception):  # noqa: N818 - not an error: the job goes on elsewhere, or later
    """The learner has to let go of the job before a round was done."""

    def __init__(self, why: str, *, stop: StopReason | None = None) -> None:
        super().__init__(why)
        self.stop = stop
        """Why the job itself ends here; None when it goes on elsewhere."""


A_co = TypeVar("A_co", bound=Algorithm | OffPolicyAlgorithm, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingParts(Generic[A_co]):
    """What training a job works with, wired by the worker."""

    scaler: ScalerClient
    cache: TrajectoryCache
    lease: HeldLease
    algorithm: A_co
    detector: Detector
    detector_every_rounds: int
    checkpoints: CheckpointStore
    record: RunRecord
    observe: Callable[[RoundLine], None]
    max_reopenings: int

    def measurement(self, round_index: int) -> Measurement | None:
        """Return what the detector says of the policy after a round; None in rounds between."""
        # Asked for in every round, so that no round's samples are kept for the next.
        samples = self.algorithm.samples()
        if samples is None or round_index % self.detector_every_rounds:
            return None
        return self.detector.measure(self.algorithm.network, samples)


class RoundLoop:
    """Trains one job from where its state says, until the scaler says stop."""

    def __init__(self, job: Job, state: RunState, parts: TrainingParts[Algorithm]) -> None:
        self._job = job
        self._state = state
        self._parts = parts
        self._clock = RoundClock()
        self._published = b""
        """The policy of the round in hand, also while the next one is made of it."""

    def run(self) -> tuple[StopReason, EvaluationResult | None]:
        """Train to the end; return why it ended and the final policy's evaluation.

        Raises:
            RoundLostError: Too few trajectories arrived, although the round was reopened, or the
                environment failed in actor after actor.
            LeftEarly: The lease was lost, or the job or this process was asked to stop mid-round.
        """
        while True:
            self._published = self._policy_payload()
            self._publish_policy()
            if self._parts.lease.must_leave:
                raise LeftEarly("asked to leave between two rounds")
            plan = self._open_round()
            self._forget_last_round()
            self._clock.lap("plan_s")
            ending = plan if plan.stop is not None else self._train_round(plan)
            if ending is not None and ending.stop is not None:
                return ending.stop, self._finish(ending)

    def _train_round(self, plan: RoundPlan) -> RoundPlan | None:
        """Train one round; return the plan that ends the job instead, if that came of it."""
        collector = self._collector(plan)
        collected = self._collect(plan, collector)
        if isinstance(collected, RoundPlan):
            return collected
        self._clock.lap("collect_s")
        update = self._parts.algorithm.update(collected.trajectories)
        self._clock.lap("update_s")
        curvature = self._parts.measurement(plan.round)
        self._clock.lap("curvature_s")
        evaluation = self._evaluated(plan, collector)
        counts = collector.close()
        self._clock.lap("evaluate_s")
        result = RoundResult(
            round=plan.round,
            policy_version=plan.policy_version + 1,
            trajectories=counts,
            env_steps=sum(t.num_steps for t in collected.trajectories),
            episode_returns=tuple(
                float(r) for t in collected.trajectories for r in t.episode_returns
            ),
            dropped_episodes=sum(t.dropped_episodes for t in collected.trajectories),
            evaluation=evaluation,
            stats=update.stats,
            timing=self._clock.take(),
        )
        self._state = RunState(
            next_round=plan.round + 1,
            policy_version=plan.policy_version + 1,
            curvature=curvature,
            previous=result,
        )
        line = RoundLine(plan=plan, result=result, curvature=curvature, evaluation=evaluation)
        self._save(line)
        return None

    def _save(self, line: RoundLine) -> None:
        # The record before the checkpoint: a resumed run drops lines its checkpoint knows not of,
        # but could not make up for a missing one.
        self._parts.record.append(line)
        arrays, scalars = self._parts.algorithm.state()
        self._parts.checkpoints.save(
            Checkpoint(
                run=self._state, arrays=arrays, scalars=scalars, policy=self._policy_payload()
            )
        )
        self._clock.lap("checkpoint_s")
        self._parts.observe(line)
        _LOG.info(
            "round done",
            extra={
                "job": self._job.job_id,
                "round": line.plan.round,
                "actors": line.plan.num_actors,
                "total_s": line.result.timing.total_s if line.result else None,
            },
        )

    def _publish_policy(self) -> None:
        self._parts.cache.publish_policy(
            self._job.job_id, self._state.policy_version, self._published
        )

    def _forget_last_round(self) -> None:
        if self._state.next_round:
            cache, job_id = self._parts.cache, self._job.job_id
            cache.free_round(job_id, self._state.next_round - 1)
            cache.delete_policy(job_id, self._state.policy_version - 1)

    def _policy_payload(self) -> bytes:
        return codec.encode(*self._parts.algorithm.policy_payload())

    def _open_round(
        self,
        attempt: int = 0,
        missing: tuple[int, ...] | None = None,
        missing_evaluations: tuple[int, ...] = (),
    ) -> RoundPlan:
        curvature = self._state.curvature
        plan = self._parts.scaler.open_round(
            self._job.job_id,
            self._state.next_round,
            RoundRequest(
                lease_id=self._parts.lease.lease_id,
                policy_version=self._state.policy_version,
                attempt=attempt,
                missing=missing,
                missing_evaluations=missing_evaluations,
                curvature=curvature,
                gradient_noise=None if curvature is None else curvature.gradient_noise,
                previous=self._state.previous,
            ),
        )
        if attempt == 0 and plan.age_s == 0.0:
            # The bill of a plan that is asked for again was in the record's first lines already.
            self._parts.record.settle(plan.settled)
        return plan

    def _collector(self, plan: RoundPlan) -> RoundCollector:
        return RoundCollector(
            self._parts.cache,
            plan,
            self._job.described_environment,
            steps_per_actor=self._job.spec.steps_per_actor,
            envs_per_actor=self._job.spec.envs_per_actor,
            should_leave=lambda: self._parts.lease.should_leave,
            must_leave=lambda: self._parts.lease.must_leave,
        )

    def _collect(self, plan: RoundPlan, collector: RoundCollector) -> CollectedRound | RoundPlan:
        """Collect a usable round, opening it again for what is missing if it must be.

        Actors that vanished have not failed: they are launched again each time, so that a restart
        does not change what is learned from.

        Returns:
            The round, or the plan that ends the job where it may not be opened again.
        """
        collected = collector.trajectories()
        left = self._parts.max_reopenings
        while collected.vanished or (left and not self._usable(plan, collected)):
            self._leave_if_asked(collected)
            if collector.doomed:
                raise environment_failed(plan, collector)
            left -= not collected.vanished
            again = self._reopen(collector, collected.missing, collected.failures)
            if again.stop is not None:
                _LOG.warning(
                    "round not reopened",
                    extra={"job": self._job.job_id, "round": plan.round, "why": again.reason},
                )
                return again
            collected = collector.trajectories()
        if self._usable(plan, collected):
            return collected
        if collector.doomed or collector.all_blaming:
            raise environment_failed(plan, collector)
        and_yet = ", and reopening it did not help" if self._parts.max_reopenings else ""
        raise round_lost(
            plan,
            collector,
            failures=collected.failures,
            env_id=self._job.spec.env_id,
            history=f"{max(1, plan.quorum)} are needed{and_yet}",
        )

    def _reopen(
        self, collector: RoundCollector, missing: tuple[int, ...], why: Sequence[str]
    ) -> RoundPlan:
        """Have these actors, and episodes that vanished, launched again."""
        round_index = self._state.next_round
        _LOG.warning(
            "round reopened",
            extra={
                "job": self._job.job_id,
                "round": round_index,
                "missing": len(missing),
                "episodes": len(collector.vanished_episodes),
                "why": why,
            },
        )
        episodes = collector.vanished_episodes
        collector.prepare_reopening()
        # It may be what they missed: keys expire, also while the machine is asleep.
        self._publish_policy()
        again = self._open_round(collector.attempt + 1, missing, episodes)
        collector.reopen(again)
        return again

    def _usable(self, plan: RoundPlan, collected: CollectedRound) -> bool:
        self._leave_if_asked(collected)
        # Never train on nothing, whatever the quorum says.
        return len(collected.trajectories) >= max(1, plan.quorum)

    def _leave_if_asked(self, collected: CollectedRound) -> None:
        lease = self._parts.lease
        if collected.missing and lease.should_leave:
            raise LeftEarly("asked to leave while a round was collected", stop=lease.stop)

    def _finish(self, plan: RoundPlan) -> EvaluationResult | None:
        collector = self._collector(plan)
        evaluation = self._evaluated(plan, collector)
        collector.close()
        line = RoundLine(plan=plan, result=None, curvature=None, evaluation=evaluation)
        self._parts.record.append(line)
        self._parts.observe(line)
        # The episodes, some hundred bytes, stay until they expire: should we die before the end is
        # reported, the next learner reports it, and with them.
        self._parts.cache.delete_policy(self._job.job_id, plan.policy_version)
        return evaluation

    def _evaluated(self, plan: RoundPlan, collector: RoundCollector) -> EvaluationResult | None:
        episodes = collector.episodes()
        lease = self._parts.lease
        while collector.vanished_episodes and not lease.must_leave:
            self._reopen(collector, (), ("evaluation episodes vanished",))
            episodes = collector.episodes()
        if lease.lost or (lease.interrupted and not collector.all_episodes_answered):
            raise LeftEarly("asked to leave before the round was done")
        return evaluation_result(plan, episodes)


def evaluation_result(plan: RoundPlan, episodes: tuple[Episode, ...]) -> EvaluationResult | None:
    """Return what the episodes launched beside a round came to; None when there are none.

    Where some did not come it is the mean of the others, which may be the shorter ones: the log
    tells of it.
    """
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


class RoundClock:
    """Stop-watch that runs through all rounds."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._laps: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """Book the time since the last lap to a stage."""
        now = time.perf_counter()
        self._laps[stage] = self._laps.get(stage, 0.0) + now - self._last
        self._last = now

    def take(self) -> RoundTiming:
        """Return the laps since the last take."""
        laps, self._laps = self._laps, {}
        stages = dict.fromkeys(RoundTiming.model_fields, 0.0) | laps
        return RoundTiming.model_validate({**stages, "total_s": sum(laps.values())})
