"""The learner's work: lease a job, train it, report its end, and look for the next.

A learner for a single job leases only that job, and ends with it.

A failure of one job ends that job with a message, never the learner. A learner that is asked to
end, or that loses the cache, returns its job, which resumes from the last checkpoint. No job is
leased while the cache does not answer.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from learning.algorithms.algorithm import Algorithm
from learning.detectors.registry import build_detector
from learning.ranks.ranks import RankLostError
from learning.updates.steps import StepsBuilder
from services.learner.job_end import end_job
from services.learner.own.cores import OwnCores
from services.learner.own.rollouts import OwnRollouts
from services.learner.readiness import Readiness
from services.learner.record.checkpoint import CheckpointStore, RunState
from services.learner.record.claiming import claim_files
from services.learner.record.initial import begin_from
from services.learner.record.run_record import RunRecord
from services.learner.record.tracking import LearnerMetrics, TensorBoard
from services.learner.rounds.gradient_desk import CachedGradientDesk
from services.learner.rounds.job_rounds import JobRounds
from services.learner.rounds.left_early import LeftEarly
from services.learner.rounds.overlapping import OverlappingRounds
from services.learner.rounds.session import RoundSession
from services.learner.rounds.streams import Streams
from services.learner.rounds.synchronous import SynchronousRounds
from services.learner.scaler.client import LeaseLostError, ScalerClient, ScalerError
from services.learner.scaler.held_lease import HeldLease
from shared.artifacts.store import ArtifactStore
from shared.cache.client import TrajectoryCache
from shared.cache.connection import CacheError, CacheUnreachableError
from shared.cache.gradients import GradientCache
from shared.contracts.jobs import FINISHED, Job, JobStatus, StopReason
from shared.contracts.learner_kind import MachineKind
from shared.contracts.leases import LONGEST_TROUBLE, Lease
from shared.contracts.rounds import EvaluationResult, RoundLine

_LOG = logging.getLogger(__name__)
_LEASE_WAIT_S = 1.0
"""One long poll for a job; short, because a request to end is noticed between two polls."""
_AGAIN_S = 1.0
"""Pause before a retry after a failure."""
_MOST_RANKS_LOST = 3
"""Ranks that may be lost in a row before a round is done; then the job fails, because repeated
losses need a repair.
"""
_COMPLETED: frozenset[StopReason] = frozenset({"max_rounds", "max_env_steps", "target_return"})


class Worker:
    """Leases and trains jobs in sequence, in the thread that calls `run`."""

    def __init__(
        self,
        *,
        learner_id: str,
        kind: MachineKind | None = None,
        job_id: str | None = None,
        connect_scaler: Callable[[], ScalerClient],
        cache: TrajectoryCache,
        build_algorithm: Callable[[Job, StepsBuilder | None], Algorithm],
        gradient_cache: GradientCache,
        own_cores: OwnCores,
        artifacts: ArtifactStore,
        metrics: LearnerMetrics,
        device: str,
        max_reopenings: int,
        readiness: Readiness,
    ) -> None:
        self._learner_id = learner_id
        self._kind = kind
        self._job_id = job_id
        self._connect_scaler = connect_scaler
        self._cache = cache
        self._build_algorithm = build_algorithm
        self._gradient_cache = gradient_cache
        self._own_cores = own_cores
        self._artifacts = artifacts
        self._metrics = metrics
        self._device = device
        self._max_reopenings = max_reopenings
        self.readiness = readiness
        """Updated by the scaler's clients, and from here for everything else."""
        self._shutdown = threading.Event()
        self._ranks_lost = 0
        """Lost ranks since the last finished round."""

    def stop(self) -> None:
        """Ask `run` to return: it leaves the current round and returns the job."""
        self._shutdown.set()

    def run(self) -> None:
        """Work until `stop`, or until this learner's only job has ended."""
        with self._connect_scaler() as scaler, self._cache, self._gradient_cache, self._own_cores:
            while not self._shutdown.is_set():
                lease = self._ask(scaler)
                if lease is not None:
                    self._metrics.busy.set(1)
                    self._train(lease)
                    self._metrics.busy.set(0)
                elif self.readiness.missing:
                    self._shutdown.wait(_AGAIN_S)
                if self._is_done(scaler):
                    _LOG.info("its job has ended", extra={"job": self._job_id})
                    return

    def _is_done(self, scaler: ScalerClient) -> bool:
        """Whether this learner's only job has ended or is gone."""
        if self._job_id is None:
            return False
        try:
            return scaler.job(self._job_id).status in FINISHED
        except LeaseLostError:
            return True
        except ScalerError as error:
            self.readiness.report("scaler", str(error))
            return False

    def _ask(self, scaler: ScalerClient) -> Lease | None:
        """Request a job; None without one, or if a dependency does not answer.

        Without the cache no job is requested, and the scaler gets the reason. An unleased job costs
        nothing and can be stopped, so the wait is unbounded.
        """
        trouble = None
        try:
            self._cache.ping()
        except CacheError as error:
            trouble = str(error)
        self.readiness.report("cache", trouble)
        # Only the first call waits for the scaler.
        wait_s = 0.0 if self.readiness.missing else _LEASE_WAIT_S
        try:
            return scaler.lease(
                self._learner_id,
                wait_s=wait_s,
                kind=self._kind,
                job_id=self._job_id,
                trouble=None if trouble is None else trouble[:LONGEST_TROUBLE],
            )
        except ScalerError as error:
            self.readiness.report("scaler", str(error))
            return None

    def _train(self, lease: Lease) -> None:
        identity = {"job": lease.job.job_id}
        _LOG.info("job leased", extra=identity)
        with (
            self._connect_scaler() as scaler,
            self._connect_scaler() as heartbeats,
            HeldLease(lease, heartbeats, self._shutdown) as held,
        ):
            try:
                claim_files(self._artifacts, held, scaler)
                stop_reason, evaluation = self._run_job(held, scaler)
                status: JobStatus = "succeeded" if stop_reason in _COMPLETED else "stopped"
                end_job(held, scaler, self._artifacts, status, stop_reason, evaluation=evaluation)
            except LeftEarly as reason:
                self._leave(held, scaler, reason)
            except CacheUnreachableError as error:
                # The job resumes from its checkpoint as soon as the cache is back.
                self._leave(held, scaler, LeftEarly(str(error), stop=held.stop))
            except LeaseLostError as error:
                _LOG.warning("job left", extra={**identity, "why": str(error)})
            except Exception as error:
                if self._may_go_on(error):
                    _LOG.warning("round lost", extra={**identity, "why": str(error)})
                    self._leave(held, scaler, LeftEarly(str(error), stop=held.stop))
                    return
                if not _still_ours(held, scaler):
                    _LOG.warning("job left", extra={**identity, "why": str(error)})
                    return
                # The boundary of one job: every failure becomes the job's recorded error.
                _LOG.exception("job failed", extra=identity)
                end_job(held, scaler, self._artifacts, "failed", "error", error=error)

    def _may_go_on(self, error: Exception) -> bool:
        """Whether a job with this error resumes from its checkpoint by itself."""
        if not isinstance(error, RankLostError):
            return False
        self._ranks_lost = (self._ranks_lost + 1) % _MOST_RANKS_LOST
        return self._ranks_lost > 0

    def _run_job(
        self, held: HeldLease, scaler: ScalerClient
    ) -> tuple[StopReason, EvaluationResult | None]:
        with ExitStack() as leaving:
            own = self._own_cores.rollouts(held.job, held.lease_id)
            if own is not None:
                leaving.callback(own.leave)
            desk = self._desk(held, scaler)
            steps = None if desk is None else desk.steps
            if desk is not None:
                leaving.callback(desk.leave)
            rounds = self._rounds(held, scaler, own)
            algorithm = self._build_algorithm(held.job, steps)
            return self._session(algorithm, rounds, desk, leaving).run()

    def _rounds(self, held: HeldLease, scaler: ScalerClient, own: OwnRollouts | None) -> JobRounds:
        """Return the job's rounds, for a session."""
        return JobRounds(
            job=held.job,
            scaler=scaler,
            cache=self._cache,
            lease=held,
            streams=Streams(envs_per_actor=held.job.spec.envs_per_actor),
            max_reopenings=self._max_reopenings,
            own=own,
        )

    def _desk(self, held: HeldLease, scaler: ScalerClient) -> CachedGradientDesk | None:
        """Return the source of the job's gradients, if functions compute them."""
        if not held.job.spec.learns_on_functions:
            return None
        return CachedGradientDesk(
            job=held.job, cache=self._gradient_cache, scaler=scaler, lease=held
        )

    def _session(
        self,
        algorithm: Algorithm,
        rounds: JobRounds,
        desk: CachedGradientDesk | None,
        leaving: ExitStack,
    ) -> RoundSession:
        """Load the job's newest checkpoint into the algorithm; wire its session."""
        job = rounds.job
        leaving.callback(self._artifacts.release, job.job_id)
        # A policy is evaluated in the round that samples it, `open_rounds` after its own.
        keep = max(job.spec.checkpoint.keep, job.spec.open_rounds)
        checkpoints = CheckpointStore(self._artifacts, job.job_id, keep=keep)
        state, policies = _restore(checkpoints, algorithm, rounds.streams)
        if job.spec.init_from is not None and state.next_round == 0:
            begin_from(algorithm, self._artifacts, job.spec.init_from)
        record = RunRecord(self._artifacts, job.job_id)
        env_steps = record.begin(
            job,
            next_round=state.next_round,
            bill=rounds.scaler.cost(job.job_id).lines,
            device=self._device,
        )
        folder = self._artifacts.local_folder(job.job_id)
        board = TensorBoard(
            folder,
            job.spec,
            env_steps=env_steps,
            hyperparameters=job.hyperparameters.model_dump(),
        )
        leaving.callback(board.close)

        def observe(line: RoundLine) -> None:
            self._ranks_lost = 0
            self._metrics.observe(line)
            board.observe(line)
            self._artifacts.publish(job.job_id)

        kind = SynchronousRounds if job.spec.open_rounds == 1 else OverlappingRounds
        return kind(
            rounds=rounds,
            state=state,
            earlier_policies=policies,
            algorithm=algorithm,
            detector=build_detector(job.spec.detector),
            checkpoints=checkpoints,
            record=record,
            observe=observe,
            env_steps=sum(env_steps.values()),
            desk=desk,
        )

    def _leave(self, held: HeldLease, scaler: ScalerClient, reason: LeftEarly) -> None:
        identity = {"job": held.job.job_id}
        _LOG.info("job left", extra={**identity, "why": str(reason)})
        if held.lost:
            return
        if reason.stop is not None:
            end_job(held, scaler, self._artifacts, "stopped", reason.stop)
            return
        try:
            scaler.give_up(held.lease_id)
        except ScalerError as error:
            _LOG.warning("lease not handed back", extra={**identity, "why": str(error)})


def _still_ours(held: HeldLease, scaler: ScalerClient) -> bool:
    """Whether a failed job is still ours: another learner's claim would refuse our writes."""
    try:
        scaler.heartbeat(held.lease_id)
    except LeaseLostError:
        return False
    except ScalerError:
        return not held.lost  # it is unreachable
    return True


def _restore(
    checkpoints: CheckpointStore, algorithm: Algorithm, streams: Streams
) -> tuple[RunState, Mapping[int, bytes]]:
    checkpoint = checkpoints.latest()
    if checkpoint is None:
        return RunState(next_round=0, policy_version=0, curvature=None, previous=None), {}
    try:
        algorithm.load_state(checkpoint.arrays, checkpoint.scalars)
        if algorithm.replay is not None:
            checkpoints.restore_replay(checkpoint, algorithm.replay)
        if checkpoint.streams:
            streams.load(checkpoint.streams)
    except ValueError as error:
        raise checkpoints.unfit(checkpoint, error) from error
    return checkpoint.run, checkpoint.earlier_policies
