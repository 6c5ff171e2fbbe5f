"""A pool's calls for a round, and its state: reports, bills, evaluations, stop reason."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from nitro.errors import EXIT_FAILED, CommandError
from nitro.pool.connection import Connection
from nitro.pool.stopping import PoolStopped
from nitro.spec.spec_file import refusal
from services.learner.rounds.job_rounds import JobRounds
from services.learner.rounds.left_early import LeftEarly
from services.learner.rounds.streams import Streams
from services.learner.rounds.window import OpenedRound
from services.learner.scaler.client import LeaseLostError
from shared.contracts.billing import LedgerLine
from shared.contracts.jobs import StopReason
from shared.contracts.message import Identifier, Number
from shared.contracts.rounds import (
    Curvature,
    EvaluationResult,
    GradientNoise,
    RoundPlan,
    RoundRequest,
    RoundResult,
)


@dataclass(slots=True, kw_only=True)
class Report:
    """The user's measurements since the last request."""

    curvature: Curvature | None = None
    gradient_noise: GradientNoise | None = None
    stats: dict[str, float] = field(default_factory=dict)


_STATS = TypeAdapter(dict[Identifier, Number])


def checked_stats(stats: Mapping[str, float]) -> dict[str, float]:
    """Return scalars in the form of a round's result.

    Raises:
        CommandError: A scalar is invalid; names it.
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
    """The bill of each round, from later plans."""

    def __init__(self) -> None:
        self._usd: dict[int, float] = {}
        self._num_lines = 0
        self._settled_rounds = 0

    def add(self, plan: RoundPlan, ledger: Callable[[], Sequence[LedgerLine]]) -> None:
        """Add a plan's ledger lines; a repeated plan changes nothing.

        A round is billed by attempt, so its lines may come with several plans.

        Args:
            plan: The scaler's answer.
            ledger: Returns all lines, in case an earlier plan did not arrive.
        """
        lines = plan.lines_behind(self._num_lines)
        if plan.settled_from > self._num_lines:
            lines = tuple(ledger())[self._num_lines :]
        for line in lines:
            self._usd[line.round] = self._usd.get(line.round, 0.0) + line.amount_usd
        self._num_lines += len(lines)
        self._settled_rounds = max(self._settled_rounds, plan.settled_rounds)

    def of(self, round_index: int) -> Callable[[], float | None]:
        """Return a function that returns a round's bill, or None while it is not final."""
        return lambda: self._usd.get(round_index) if round_index < self._settled_rounds else None


_REOPENINGS = 1
"""Most relaunches of a round with too few trajectories."""


class RoundCalls:
    """The calls of one pool, and their state; use it from one thread."""

    def __init__(self, connection: Connection) -> None:
        self.job = connection.job
        self.spec = connection.job.spec
        self.environment = connection.job.described_environment
        self.lease = connection.lease
        self.rounds = JobRounds(
            job=connection.job,
            scaler=connection.scaler,
            cache=connection.cache,
            lease=connection.lease,
            streams=Streams(envs_per_actor=self.spec.envs_per_actor),
            max_reopenings=_REOPENINGS,
            own=connection.own,
            on_plan=self._told,
        )
        self.bills = Bills()
        self.report = Report()
        self.evaluations: list[EvaluationResult] = []
        self.final_evaluation: EvaluationResult | None = None
        """Evaluation of the policy in the request for the job's last plan."""
        self.stop: StopReason | None = None
        """Why the rounds are over; None until then."""
        self.spent_usd = 0.0
        """The job's bill in the latest plan."""
        self._scaler = connection.scaler
        self._client = connection.client

    def require_open(self) -> None:
        """Check that there may be another round.

        Raises:
            PoolStopped: The job has ended, or its lease is lost.
        """
        if self.stop is not None:
            raise self.stopped(self.stop, "the pool's rounds are over")
        self.require_held()

    def require_held(self) -> None:
        """Check that the lease is held.

        Raises:
            PoolStopped: It is lost: the job has ended, or heartbeats were missing.
        """
        if self.lease.lost:
            raise self._lost("the lease was lost")

    def stopped(self, reason: StopReason, why: str) -> PoolStopped:
        """Return the exception that ends the pool's block."""
        return PoolStopped(reason, why, job_id=self.job.job_id)

    def _lost(self, why: str) -> CommandError:
        """Return the same for a job with a lost lease, or the error of a failed job."""
        try:
            job = self._client.get(self.job.job_id)
        except CommandError:
            return self.stopped("client_gone", why)
        if job.status == "failed":
            return CommandError(f"{job.job_id} failed: {job.error}", exit_code=EXIT_FAILED)
        return self.stopped(job.stop_reason or "client_gone", why)

    @contextmanager
    def while_held(self) -> Iterator[None]:
        """Turn the error of a lost lease into the exception that ends the pool's block."""
        try:
            yield
        except LeaseLostError as error:
            raise self._lost(str(error)) from error
        except LeftEarly as left:
            self.require_held()
            raise self.stopped(left.stop or "client_gone", str(left)) from left

    def preview(self, index: int, previous: RoundResult | None) -> RoundPlan:
        """Return the plan of a round without launching it."""
        self.require_open()
        request = self.rounds.with_offer(self._request(index, previous))
        with self.while_held():
            return self._scaler.preview_round(self.job.job_id, index, request)

    def ask(
        self,
        index: int,
        previous: RoundResult | None,
        *,
        num_actors: int | None = None,
        ends: StopReason | None = None,
    ) -> RoundPlan:
        """Request a round; the scaler returns the same plan for a repeated request.

        Args:
            index: The round, and the version of its published policy.
            previous: Result of the finished round.
            num_actors: Overrides the scaling policy's number.
            ends: Why the job ends with this plan.
        """
        more = {"num_actors": num_actors, "ends": ends}
        plan = self.rounds.ask(index, self._request(index, previous).model_copy(update=more))
        self.report = Report()
        return plan

    def evaluated(self, opened: OpenedRound) -> EvaluationResult | None:
        """Wait for a round's evaluation episodes, and record their returns."""
        result = self.rounds.evaluated(opened)
        self.note(result)
        return result

    def note(self, evaluation: EvaluationResult | None) -> None:
        """Record an evaluation, if there is one."""
        if evaluation is not None:
            self.evaluations.append(evaluation)

    def finish(self, plan: RoundPlan) -> None:
        """Collect the final evaluation, launched by the job's last plan."""
        opened = self.rounds.open(plan)
        self.final_evaluation = self.evaluated(opened)
        opened.collector.close()
        self.rounds.cache.forget_starts(self.job.job_id, plan.round)
        self.stop = plan.stop

    def _told(self, plan: RoundPlan) -> None:
        self.spent_usd = plan.spent_usd
        self.bills.add(plan, lambda: self._scaler.cost(self.job.job_id).lines)

    def _request(self, version: int, previous: RoundResult | None) -> RoundRequest:
        return RoundRequest(
            lease_id=self.lease.lease_id,
            policy_version=version,
            curvature=self.report.curvature,
            gradient_noise=self.report.gradient_noise,
            previous=previous,
        )
