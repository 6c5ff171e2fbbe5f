"""A pool's calls for any round, and its notes: reports, bills, evaluations, and why rounds end."""

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
    """The bill of each round, as later plans report it."""

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


_REOPENINGS = 1
"""How often a round that brought too little is launched again."""


class RoundCalls:
    """The calls of one pool, and what they leave for later ones; use it from one thread."""

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
        """Of the policy that the job's last plan was asked for with."""
        self.stop: StopReason | None = None
        """Why the rounds are over; None as long as they go on."""
        self.spent_usd = 0.0
        """The job's bill, as the latest plan reports it."""
        self._scaler = connection.scaler
        self._client = connection.client

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
    def while_held(self) -> Iterator[None]:
        """Raise what ends the pool's block in place of what says that the job is not held."""
        try:
            yield
        except LeaseLostError as error:
            raise self._lost(str(error)) from error
        except LeftEarly as left:
            self.require_held()
            raise self.stopped(left.stop or "client_gone", str(left)) from left

    def preview(self, index: int, previous: RoundResult | None) -> RoundPlan:
        """Return what a round would be; nothing is launched."""
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
        """Have a round launched; asked again, the scaler returns the same plan.

        Args:
            index: The round, and the version of its policy, which is published by now.
            previous: Result of the round that is over.
            num_actors: In place of what the scaling policy decides.
            ends: Why the job ends with this plan.
        """
        more = {"num_actors": num_actors, "ends": ends}
        plan = self.rounds.ask(index, self._request(index, previous).model_copy(update=more))
        self.report = Report()
        return plan

    def evaluated(self, opened: OpenedRound) -> EvaluationResult | None:
        """Wait for a round's evaluation episodes, and note their returns."""
        result = self.rounds.evaluated(opened)
        self.note(result)
        return result

    def note(self, evaluation: EvaluationResult | None) -> None:
        """Note an evaluation, if there is one."""
        if evaluation is not None:
            self.evaluations.append(evaluation)

    def finish(self, plan: RoundPlan) -> None:
        """Receive what the job's last plan launched: the final evaluation."""
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
