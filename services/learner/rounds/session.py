"""The common steps of training, with or without overlap: ask, measure, save, free.

`SynchronousRounds` and `OverlappingRounds` are sessions that differ in the order of these steps and
in their waits. The learner does not decide about scaling: it reports curvature and results, and
follows the plan.

A round counts only when its checkpoint is written. A failure before that costs at most this round,
because a repeated request returns the same plan and seeds. So a round stays in the cache until its
checkpoint.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from learning.algorithms.algorithm import Algorithm
from learning.detectors.detector import Detector, Measurement
from services.learner.record.checkpoint import Checkpoint, CheckpointStore, RunState
from services.learner.record.run_record import RunRecord
from services.learner.rounds.gradient_desk import CachedGradientDesk
from services.learner.rounds.job_rounds import JobRounds
from services.learner.rounds.round_clock import RoundClock
from shared.contracts.gradients import GradientRecord
from shared.contracts.jobs import StopReason
from shared.contracts.rounds import (
    Curvature,
    EvaluationResult,
    RoundLine,
    RoundPlan,
    RoundRequest,
    RoundResult,
)
from shared.policy.numpy_policy import halved
from shared.trajectory import codec

_LOG = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class RoundSession(ABC):
    """One job's training: its parts, its state, and the steps of a round."""

    rounds: JobRounds
    state: RunState
    """The state of training, as in the newest checkpoint."""
    earlier_policies: Mapping[int, bytes]
    """Policies of its open rounds' actors, by version."""
    algorithm: Algorithm
    detector: Detector
    checkpoints: CheckpointStore
    record: RunRecord
    observe: Callable[[RoundLine], None]
    env_steps: int = 0
    """Environment steps of all rounds that count."""
    desk: CachedGradientDesk | None = None
    """The source of learner functions' gradients; None if the learner computes them itself."""

    def __post_init__(self) -> None:
        self.job, self.lease = self.rounds.job, self.rounds.lease
        self.cache = self.rounds.cache
        self.rounds.on_plan = self.record.settle
        self.clock = RoundClock()

    @abstractmethod
    def run(self) -> tuple[StopReason, EvaluationResult | None]:
        """Train from the current state until the scaler says stop.

        Returns:
            Why it ended, and the final policy's evaluation.

        Raises:
            RoundLostError: One round, or several in a row, had too few trajectories.
            LeftEarly: The lease was lost, or the job or this process was asked to end.
        """

    def policy_payload(self) -> bytes:
        """Return the current policy as stored."""
        return codec.encode(*self.algorithm.policy_payload())

    def policy_for_actors(self) -> bytes:
        """Return the current policy for actors."""
        arrays, metadata = self.algorithm.policy_payload()
        halves = self.job.spec.policy_precision == "float16"
        return codec.encode(halved(arrays) if halves else arrays, metadata)

    def ask(
        self,
        index: int,
        *,
        policy_version: int,
        curvature: Curvature | None,
        previous: RoundResult | None,
    ) -> RoundPlan:
        """Request a round; a repeat returns the same plan."""
        request = RoundRequest(
            lease_id=self.lease.lease_id,
            policy_version=policy_version,
            curvature=curvature,
            gradient_noise=None if curvature is None else curvature.gradient_noise,
            previous=previous,
        )
        return self.rounds.ask(index, request)

    def open_gradients(self, round_index: int) -> None:
        """Set the round of later gradients of functions."""
        if self.desk is not None:
            self.desk.open_round(round_index)

    def close_gradients(self) -> GradientRecord | None:
        """Return the outcomes of learner functions' gradients; None without any."""
        return None if self.desk is None else self.desk.close_round()

    def measurement(self, plan: RoundPlan) -> tuple[Curvature | None, dict[str, float]]:
        """Return the curvature of the policy after a round, and the detector's other numbers.

        In skipped rounds these are None and empty.
        """
        # Fetched in every round, so that samples are not kept for the next.
        samples = self.algorithm.samples()
        if samples is not None and samples.start is not None and not plan.fragment_noise:
            # It costs as much as the rest, and the current policy does not use it.
            samples = replace(samples, start=None)
        measured: Measurement | None = None
        network = self.algorithm.network
        measures = plan.round % self.job.measures_every_rounds == 0
        if network is not None and samples is not None and measures:
            measured = self.detector.measure(network, samples)
        self.clock.lap("curvature_s")
        if measured is None or isinstance(measured, Curvature):
            return measured, {}
        return None, {f"measured_{name}": value for name, value in measured.items()}

    def save(
        self,
        plan: RoundPlan,
        result: RoundResult,
        state: RunState,
        earlier_policies: Mapping[int, bytes] | None = None,
    ) -> None:
        """Record a round that is over and write the checkpoint that makes it count.

        The earlier policies, by version, belong to open rounds' actors.
        """
        line = RoundLine(
            plan=plan, result=result, curvature=state.curvature, evaluation=result.evaluation
        )
        # The record before the checkpoint: a resumed run drops lines after its checkpoint, but
        # could not restore a missing one.
        self.record.append(line)
        arrays, scalars = self.algorithm.state()
        self.checkpoints.save(
            Checkpoint(
                run=state,
                arrays=arrays,
                scalars=scalars,
                policy=self.policy_payload(),
                earlier_policies=dict(earlier_policies or {}),
                streams=self.rounds.streams.encode() if self.job.continues_episodes else b"",
            ),
            replay=self.algorithm.replay,
            best=self.record.best,
        )
        self.state = state
        self.env_steps += result.env_steps
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

        The episodes, some hundred bytes, stay in the cache until they expire: if this process dies
        before it reports the end, the next learner reports it with them.
        """
        line = RoundLine(plan=plan, result=None, curvature=None, evaluation=evaluation)
        self.record.append(line)
        self.observe(line)
        self.cache.forget_starts(self.job.job_id, plan.round)
