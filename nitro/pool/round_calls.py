"""What a pool does for any round, whether rounds overlap or not: publish, ask, note, evaluate."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from nitro.errors import EXIT_FAILED, CommandError
from nitro.pool.connection import Connection
from nitro.pool.stopping import PoolStopped
from nitro.spec.spec_file import refusal
from services.learner.rounds.collector import RoundCollector
from services.learner.rounds.streams import Streams
from services.learner.scaler.client import LeaseLostError
from shared.contracts.billing import LedgerLine
from shared.contracts.jobs import StopReason
from shared.contracts.message import Identifier, Number
from shared.contracts.rounds import (
    Curvature,
    EvaluationResult,
    GradientNoise,
    OwnWork,
    RoundPlan,
    RoundRequest,
    RoundResult,
)
from shared.trajectory.trajectory import Trajectory


@dataclass(slots=True, kw_only=True)
class Report:
    """What the user measured since the last request."""

    curvature: Curvature | None = None
    gradient_noise: GradientNoise | None = None
    stats: dict[str, float] = field(default_factory=dict)


_STATS = TypeAdapter(dict[Identifier, Number])


def checked_stats(stats: Mapping[str, float]) -> dict[str, float]:
    """Return scalars as a round's result can have them.

    Raises:
        CommandError: One cannot be there; names it.
    """
    numbers = {}
    for name, value in stats.items():
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError, RuntimeError) as error:  # the last is torch's
            raise CommandError(f"stats: {name}: must be a number, got {value!r:.80}") from error
    try:
        return _STATS.validate_python(numbers)
    except ValidationError as error:
        raise CommandError(f"stats: {refusal(error)}") from error


class Bills:
    """What each round was billed, as the scaler tells with later plans."""

    def __init__(self) -> None:
        self._usd: dict[int, float] = {}
        self._num_lines = 0
        self._settled_rounds = 0

    def add(self, plan: RoundPlan, ledger: Callable[[], Sequence[LedgerLine]]) -> None:
        """Take in the lines of the ledger that come with a plan, also with one that came before.

        A round's lines may come with several plans: it is billed attempt by attempt.

        Args:
            plan: The scaler's answer.
            ledger: Returns all lines, for when a plan before this one did not arrive.
        """
        lines = plan.lines_behind(self._num_lines)
        if plan.settled_from > self._num_lines:
            lines = tuple(ledger())[self._num_lines :]
        for line in lines:
            self._usd[line.round] = self._usd.get(line.round, 0.0) + line.amount_usd
        self._num_lines += len(lines)
        self._settled_rounds = max(self._settled_rounds, plan.settled_rounds)

    def of(self, round_index: int) -> Callable[[], float | None]:
        """Return what tells the bill of a round; None while it is not final."""
        return lambda: self._usd.get(round_index) if round_index < self._settled_rounds else None


class RoundCalls:
    """The calls of one pool, and what they leave for later ones; use it from one thread."""

    def __init__(self, connection: Connection) -> None:
        self.job = connection.job
        self.spec = connection.job.spec
        self.environment = connection.job.described_environment
        self.lease = connection.lease
        self.cache = connection.cache
        self.bills = Bills()
        self.report = Report()
        self.evaluations: list[EvaluationResult] = []
        self.final_evaluation: EvaluationResult | None = None
        """Of the policy that the job's last plan was asked for with."""
        self.stop: StopReason | None = None
        """Why the rounds are over; None as long as they go on."""
        self.spent_usd = 0.0
        """What the job was billed, as last told with a plan."""
        self._own = connection.own
        self._scaler = connection.scaler
        self._client = connection.client
        self._streams = Streams(envs_per_actor=self.spec.envs_per_actor)
        self._begun_anew = self._lost_replays = 0

    def require_open(self) -> None:
        """Make sure that there may be another round.

        Raises:
            PoolStopped: The job has ended, or is not held any more.
        """
        if self.stop is not None:
            raise self.stopped(self.stop, "the pool's rounds are over")
        self.require_held()

    def require_held(self) -> None:
        """Make sure that the job is held.

        Raises:
            PoolStopped: It is not any more: it has ended, or nothing was heard from here.
        """
        if self.lease.lost:
            raise self._lost("the lease was lost")

    def stopped(self, reason: StopReason, why: str) -> PoolStopped:
        """Return what ends the pool's block."""
        return PoolStopped(reason, why, job_id=self.job.job_id)

    def _lost(self, why: str) -> CommandError:
        """Return the same for a job that is not held any more, or the error that it failed with."""
        try:
            job = self._client.get(self.job.job_id)
        except CommandError:
            return self.stopped("client_gone", why)
        if job.status == "failed":
            return CommandError(f"{job.job_id} failed: {job.error}", exit_code=EXIT_FAILED)
        return self.stopped(job.stop_reason or "client_gone", why)

    @contextmanager
    def _while_held(self) -> Iterator[None]:
        try:
            yield
        except LeaseLostError as error:
            raise self._lost(str(error)) from error

    def preview(self, index: int, version: int, previous: RoundResult | None) -> RoundPlan:
        """Return what a round would be; nothing is launched."""
        self.require_open()
        request = self._request(policy_version=version, previous=previous)
        with self._while_held():
            return self._scaler.preview_round(self.job.job_id, index, request)

    def publish(self, version: int, payload: bytes) -> None:
        """Put a policy where actors fetch it, also one that was there before: keys expire."""
        self.cache.publish_policy(self.job.job_id, version, payload)

    def ask(
        self, index: int, version: int, previous: RoundResult | None, **more: object
    ) -> RoundPlan:
        """Have a round launched; asked again, the scaler returns the same plan.

        Args:
            index: The round.
            version: Of the policy, which is published by now.
            previous: Result of the round that is over.
            **more: Further fields of the request: `num_actors`, or those of another attempt.
        """
        if self.job.continues_episodes:
            # Before the plan: its actors start at once.
            most = self.spec.actors.max * self.spec.envs_per_actor
            starts = self._streams.starts(index)[:most]
            self.cache.publish_starts(self.job.job_id, index, starts)
        if self._own is not None:
            self._own.told(previous)
        request = self._request(policy_version=version, previous=previous, **more)
        with self._while_held():
            plan = self._scaler.open_round(self.job.job_id, index, request)
        self.spent_usd = plan.spent_usd
        self._streams.take(index, plan.num_actors)
        if self._own is not None:
            again = (request.missing, request.missing_evaluations) if request.attempt else ()
            self._own.launch(plan, *again)
        self.bills.add(plan, lambda: self._scaler.cost(self.job.job_id).lines)
        if request.attempt == 0:
            self.report = Report()
        return plan

    def collector(self, plan: RoundPlan) -> RoundCollector:
        """Return what receives a round's results."""
        return RoundCollector(
            self.cache,
            plan,
            self.environment,
            steps_per_actor=self.spec.steps_of(max(1, plan.num_actors)),
            envs_per_actor=self.spec.envs_per_actor,
            should_leave=lambda: self.lease.should_leave,
            must_leave=lambda: self.lease.must_leave,
        )

    def keep(self, trajectories: Iterable[Trajectory]) -> None:
        """Keep where actors left the episodes of what is handed over."""
        for trajectory in trajectories:
            self._begun_anew += trajectory.begun_anew
            self._lost_replays += trajectory.lost_replays
            if self.job.continues_episodes:
                self._streams.leave(trajectory.round, trajectory.actor_index, trajectory.snapshots)

    def release(self, round_index: int) -> int:
        """Let a round's episodes be gone on with; return how many had to begin anew by now."""
        self._streams.release(round_index)
        number, self._begun_anew = self._begun_anew, 0
        return number

    def own_work(self, round_index: int) -> OwnWork | None:
        """Return what a round that is over did on the program's own cores; None if nothing."""
        return None if self._own is None else self._own.work(round_index)

    def take_lost_replays(self) -> int:
        """Return how many did as their repeated actions gave another episode, since last asked."""
        number, self._lost_replays = self._lost_replays, 0
        return number

    def evaluated(self, collector: RoundCollector) -> EvaluationResult | None:
        """Wait for a round's evaluation episodes, and note their returns."""
        episodes = collector.episodes()
        if not episodes:
            return None
        result = EvaluationResult(
            policy_version=collector.plan.policy_version,
            returns=tuple(e.episode_return for e in episodes),
            lengths=tuple(e.length for e in episodes),
        )
        self.evaluations.append(result)
        return result

    def finish(self, plan: RoundPlan) -> None:
        """Receive what the job's last plan launched: the final evaluation."""
        collector = self.collector(plan)
        self.final_evaluation = self.evaluated(collector)
        collector.close()
        self.cache.forget_starts(self.job.job_id, plan.round)
        self.stop = plan.stop

    def _request(self, **more: object) -> RoundRequest:
        said = {
            "lease_id": self.lease.lease_id,
            "curvature": self.report.curvature,
            "gradient_noise": self.report.gradient_noise,
            "own": None if self._own is None else self._own.offer(),
        }
        return RoundRequest.model_validate(said | more)
