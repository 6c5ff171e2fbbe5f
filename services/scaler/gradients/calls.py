"""A round's calls of learner functions while they are in flight.

Kept in memory: what of it must outlive the process, the money, is in the store before the first of
them is launched.
"""

from dataclasses import dataclass, field
from threading import Lock

from services.scaler.launching.invoker import TaskKind, TaskOutcome
from shared.contracts.gradients import GradientReport, GradientRequest, GradientTask
from shared.contracts.leases import hash_of_lease

CallsKey = tuple[str, int, str]
"""Job id, round, lease id."""
GradientOutcome = TaskOutcome[GradientTask, GradientReport]

GRADIENTS: TaskKind[GradientTask, GradientReport] = TaskKind(
    read=GradientReport.read,
    identity=lambda task: {
        "job": task.job_id,
        "round": task.round,
        "request": task.request,
        "call": task.call.call,
    },
    asked=lambda task: (task.job_id, task.round, task.call.call),
    answered=lambda report: (report.job_id, report.round, report.call),
)
"""What learner functions do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsOrder:
    """A request, about to be launched."""

    key: CallsKey
    request: GradientRequest
    deadline_at: float
    """Unix seconds."""

    def tasks(self) -> list[GradientTask]:
        """Return the Lambda events."""
        job_id, round_index, lease_id = self.key
        lease_hash = hash_of_lease(lease_id)
        return [
            GradientTask(
                job_id=job_id,
                round=round_index,
                request=self.request.request,
                lease_hash=lease_hash,
                call=call,
                deadline_at=self.deadline_at,
            )
            for call in self.request.calls
        ]


@dataclass(slots=True, kw_only=True, eq=False)
class RoundCalls:
    """All calls of a round under one lease."""

    changing: Lock = field(default_factory=Lock)
    """Held while a request is answered or the round is booked: either may write to the store."""

    reserved: int = 0
    """Calls that money is set aside for."""
    launched: int = 0
    """Of these, those that were launched."""
    known: set[int] = field(default_factory=set)
    """Numbers of the requests so far."""
    in_flight: int = 0
    closed: bool = False
    """Whether no more are to come."""
    durations_s: list[float] = field(default_factory=list)
    """Of each execution that is to be billed."""
    num_requests: int = 0
    """That are to be billed."""
    num_lost: int = 0

    @property
    def ended(self) -> tuple[tuple[float, ...], int]:
        """What is to be billed: executions, and requests."""
        return tuple(self.durations_s), self.num_requests

    def reserve(
        self, num_calls: int, *, running: int, billed: tuple[tuple[float, ...], int]
    ) -> None:
        """Note that money is set aside for so many calls, and what was billed instead.

        Args:
            num_calls: All that money is set aside for from here on.
            running: Of these, those that were launched before.
            billed: What of `ended` is in the ledger.
        """
        self.reserved, self.launched = num_calls, running
        durations_s, num_requests = billed
        del self.durations_s[: len(durations_s)]
        self.num_requests -= num_requests

    def add(self, request: GradientRequest) -> None:
        """Count a request that is about to be launched."""
        self.known.add(request.request)
        self.launched += len(request.calls)
        self.in_flight += len(request.calls)

    def end(self, outcome: GradientOutcome, billed_s: list[float]) -> None:
        """Note how a call ended."""
        self.in_flight -= 1
        self.durations_s += billed_s
        self.num_requests += outcome.requests
        self.num_lost += outcome.report is None

    @property
    def landed(self) -> bool:
        """Whether all is known of it."""
        return self.closed and self.in_flight == 0
