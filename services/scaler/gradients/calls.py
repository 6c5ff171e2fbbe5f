"""What is launched for a learner's request for gradients."""

from dataclasses import dataclass

from services.scaler.book.records import AttemptKey
from services.scaler.launching.invoker import TaskKind, TaskOutcome
from shared.contracts.gradients import GradientReport, GradientRequest, GradientTask
from shared.contracts.leases import hash_of_lease

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

    key: AttemptKey
    request: GradientRequest
    deadline_at: float
    """Unix seconds."""

    def tasks(self) -> list[GradientTask]:
        """Return the Lambda events."""
        job_id, round_index, _, lease_id = self.key
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
