"""What training does in a round whether rounds overlap or not: publish, ask, measure, save, forget.

The two ways to order rounds, `SynchronousRounds` and `OverlappingRounds`, are sessions that differ
in when they do each of these and in what they wait for. The learner decides nothing about scaling:
it reports curvature and results, and does what the plan says.

A round counts only once its checkpoint is written; whatever breaks before that costs this round at
most, because asking for it again returns the same plan and the same seeds. So nothing of a round is
removed from the cache before its checkpoint.
"""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from learning.algorithms.algorithm import Algorithm, OffPolicyAlgorithm
from learning.detectors.detector import Detector, Measurement
from services.learner.own.rollouts import OwnRollouts
from services.learner.record.checkpoint import Checkpoint, CheckpointStore, RunState
from services.learner.record.run_record import RunRecord
from services.learner.rounds.gradient_desk import CachedGradientDesk
from services.learner.rounds.left_early import LeftEarly
from services.learner.rounds.streams import Streams
from services.learner.scaler.client import ScalerClient
from services.learner.scaler.held_lease import HeldLease
from shared.cache.client import TrajectoryCache
from shared.contracts.gradients import GradientRecord
from shared.contracts.jobs import Job, StopReason
from shared.contracts.rounds import (
    Curvature,
    EvaluationResult,
    OwnWork,
    RoundLine,
    RoundPlan,
    RoundRequest,
    RoundResult,
    RoundTiming,
)
from shared.policy.numpy_policy import halved
from shared.trajectory import codec
from shared.trajectory.trajectory import Episode, Trajectory

_LOG = logging.getLogger(__name__)


A = TypeVar("A", bound=Algorithm | OffPolicyAlgorithm)


@dataclass(kw_only=True, eq=False)
class RoundSession(ABC, Generic[A]):
    """One job's training: what it works with, where it stands, and the steps of a round."""

    job: Job
    state: RunState
    """Where training stands: as the newest checkpoint has it."""
    earlier_policies: Mapping[int, bytes]
    """By version, those that actors of its open rounds fetch."""
    scaler: ScalerClient
    cache: TrajectoryCache
    lease: HeldLease
    algorithm: A
    detector: Detector
    checkpoints: CheckpointStore
    record: RunRecord
    streams: Streams
    observe: Callable[[RoundLine], None]
    max_reopenings: int
    desk: CachedGradientDesk | None = None
    """Where gradients of functions come from; None where the learner computes them itself."""
    own: OwnRollouts | None = None
    """What runs on the learner's own cores; None where nothing does."""

    def __post_init__(self) -> None:
        self.clock = RoundClock()
        self._begun_anew = self._lost_replays = 0

    @abstractmethod
    def run(self) -> tuple[StopReason, EvaluationResult | None]:
        """Train from where the state says, until the scaler says stop.

        Returns:
            Why it ended, and the final policy's evaluation.

        Raises:
            RoundLostError: Too little came of a round, or of several in a row.
            LeftEarly: The lease was lost, or the job or this process was asked to end.
        """

    def leave_if_must(self, where: str) -> None:
        """Raise `LeftEarly` if the lease was lost or this process was asked to end."""
        if self.lease.must_leave:
            raise LeftEarly(f"asked to leave {where}")

    def policy_payload(self) -> bytes:
        """Return the present policy as it is kept."""
        return codec.encode(*self.algorithm.policy_payload())

    def policy_for_actors(self) -> bytes:
        """Return the present policy as actors fetch it."""
        arrays, metadata = self.algorithm.policy_payload()
        halves = self.job.spec.policy_precision == "float16"
        return codec.encode(halved(arrays) if halves else arrays, metadata)

    def ask(
        self,
        round_index: int,
        *,
        policy_version: int,
        curvature: Curvature | None,
        previous: RoundResult | None,
        attempt: int = 0,
        missing: tuple[int, ...] | None = None,
        missing_evaluations: tuple[int, ...] = (),
    ) -> RoundPlan:
        """Ask the scaler for a round; asked for again, it returns the same plan.

        With an attempt above 0 the round is opened again for the actors, and the evaluation
        episodes, that are missing.
        """
        own = self.own
        if own is not None:
            own.told(previous)
        request = RoundRequest(
            lease_id=self.lease.lease_id,
            policy_version=policy_version,
            attempt=attempt,
            missing=missing,
            missing_evaluations=missing_evaluations,
            curvature=curvature,
            gradient_noise=None if curvature is None else curvature.gradient_noise,
            own=None if own is None else own.offer(),
            previous=previous,
        )
        if self.job.continues_episodes:
            # Before the plan: its actors start at once.
            most = self.job.spec.actors.max * self.job.spec.envs_per_actor
            starts = self.streams.starts(round_index)[:most]
            self.cache.publish_starts(self.job.job_id, round_index, starts)
        plan = self.scaler.open_round(self.job.job_id, round_index, request)
        self.streams.take(round_index, plan.num_actors)
        if own is not None:
            own.launch(plan, *((missing, missing_evaluations) if attempt else ()))
        self.record.settle(plan)
        return plan

    def keep(self, trajectories: Iterable[Trajectory]) -> None:
        """Keep where actors left the episodes of what is learned from."""
        for trajectory in trajectories:
            self._begun_anew += trajectory.begun_anew
            self._lost_replays += trajectory.lost_replays
            if self.job.continues_episodes:
                self.streams.leave(trajectory.round, trajectory.actor_index, trajectory.snapshots)

    def open_gradients(self, round_index: int) -> None:
        """Say of which round the gradients are that functions compute from now on."""
        if self.desk is not None:
            self.desk.open_round(round_index)

    def close_gradients(self) -> GradientRecord | None:
        """Return what became of the gradients of functions; None where there were none."""
        return None if self.desk is None else self.desk.close_round()

    def own_work(self, round_index: int) -> OwnWork | None:
        """Return what a round that is over did on own cores; None if nothing."""
        return None if self.own is None else self.own.work(round_index)

    def take_begun_anew(self) -> int:
        """Return how many episodes were to go on and began anew, since the last call."""
        number, self._begun_anew = self._begun_anew, 0
        return number

    def take_lost_replays(self) -> int:
        """Return how many of them did as their repeated actions gave another episode."""
        number, self._lost_replays = self._lost_replays, 0
        return number

    def measurement(self, plan: RoundPlan) -> Measurement | None:
        """Return what the detector says of the policy after a round; None in rounds between."""
        # Asked for in every round, so that no round's samples are kept for the next.
        samples = self.algorithm.samples()
        if samples is not None and samples.start is not None and not plan.fragment_noise:
            # It costs as much as the rest, and no policy in force looks at it.
            samples = replace(samples, start=None)
        measured, network = None, self.algorithm.network
        measures = plan.round % self.job.measures_every_rounds == 0
        if network is not None and samples is not None and measures:
            measured = self.detector.measure(network, samples)
        self.clock.lap("curvature_s")
        return measured

    def save(
        self,
        plan: RoundPlan,
        result: RoundResult,
        state: RunState,
        earlier_policies: Mapping[int, bytes] | None = None,
    ) -> None:
        """Record a round that is over and write the checkpoint that makes it count.

        The earlier policies, by version, are those that actors of open rounds fetch.
        """
        line = RoundLine(
            plan=plan, result=result, curvature=state.curvature, evaluation=result.evaluation
        )
        # The record before the checkpoint: a resumed run drops lines its checkpoint knows not of,
        # but could not make up for a missing one.
        self.record.append(line)
        arrays, scalars = self.algorithm.state()
        self.streams.release(plan.round)
        self.checkpoints.save(
            Checkpoint(
                run=state,
                arrays=arrays,
                scalars=scalars,
                policy=self.policy_payload(),
                earlier_policies=dict(earlier_policies or {}),
                streams=self.streams.encode() if self.job.continues_episodes else b"",
            ),
            replay=self.algorithm.replay,
            best=self.record.best,
        )
        self.state = state
        self.clock.lap("checkpoint_s")
        self.observe(line)
        _LOG.info(
            "round done",
            extra={
                "job": self.job.job_id,
                "round": plan.round,
                "actors": plan.num_actors,
                "policy_version": state.policy_version,
                "total_s": result.timing.total_s,
            },
        )

    def record_end(self, plan: RoundPlan, evaluation: EvaluationResult | None) -> None:
        """Record a plan that ended the job, and the final policy's evaluation.

        The episodes, some hundred bytes, stay in the cache until they expire: should we die before
        the end is reported, the next learner reports it, and with them.
        """
        line = RoundLine(plan=plan, result=None, curvature=None, evaluation=evaluation)
        self.record.append(line)
        self.observe(line)
        self.cache.forget_starts(self.job.job_id, plan.round)


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
