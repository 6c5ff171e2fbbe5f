"""The records of a job's launches: what is planned, what is open, and what became of it."""

from typing import NamedTuple

from pydantic import FiniteFloat

from services.scaler.scaling.base import NoiseMemory
from shared.cache.arrivals import Mode
from shared.contracts.message import Count, Identifier, Message, NonNegativeFloat, PositiveInt
from shared.contracts.rounds import LaunchCounts, OwnWork, RoundPlan, RoundResult


class AttemptKey(NamedTuple):
    """One launch.

    A resumed job counts attempts from 0 again, while actors of the first launch may still run.
    """

    job_id: str
    round: int
    attempt: int
    lease_id: str

    @property
    def log_fields(self) -> dict[str, object]:
        """Its names in logs, which do not show leases."""
        return {"job": self.job_id, "round": self.round, "attempt": self.attempt}


class LaunchOutcome(Message):
    """The complete outcome of the invocations of one (round, attempt)."""

    counts: LaunchCounts
    requests: Count
    """Executions AWS bills a request for."""
    durations_s: tuple[NonNegativeFloat, ...]
    """Duration of each execution as AWS bills it, or would."""
    slowest_sample_s: NonNegativeFloat
    """Longest rollout, including a second execution."""
    slowest_evaluation_s: NonNegativeFloat


class FunctionTimes(Message):
    """Time of a rollout on a function: the call's overhead, and each step."""

    step_s: NonNegativeFloat
    call_s: NonNegativeFloat


class OpenAttempt(Message):
    """A launched (round, attempt) whose bill is not final: money is reserved for it."""

    round: Count
    attempt: Count
    lease_id: Identifier
    """Lease it was planned under."""
    num_invocations: Count
    num_evaluations: Count = 0
    """Evaluation episodes among them; 0 in records of earlier versions."""
    num_own: Count = 0
    """Additional actors on the learner's own cores."""
    own_s: NonNegativeFloat = 0.0
    """From the plan to the last end on own cores; 0 until the round is over."""
    own_work: OwnWork | None = None
    """All tasks there; None until the round is over, and in records of earlier versions."""
    reserved_usd: NonNegativeFloat
    warm: Count
    """Invocations that found provisioned concurrency ready."""
    cold: Count = 0
    """Cold starts on AWS: invocations beyond those and beyond the job's idle environments."""
    kept_warm: Count | None = None
    """Environments that its job kept warm; None in records of earlier versions, where it was the
    job's most actors.
    """
    pinged: Count = 0
    """Environments its job had pinged while they idled."""
    deadline_s: NonNegativeFloat | None = None
    """How long its learner waits at most; None for a search, which waits for every part, and in
    records of earlier versions.
    """
    open_rounds: PositiveInt = 1
    """Number of the job's open rounds, including this one."""
    outcome: LaunchOutcome | None = None
    """None until every invocation has ended."""
    learner_s: NonNegativeFloat | None = None
    """The learner's own time; None until the round is over."""
    update_s: NonNegativeFloat = 0.0
    """Its update's part of that; 0 where nothing was learned."""
    overhead_s: NonNegativeFloat = 0.0
    """Seconds for publishing the policy and requesting the round."""
    held_s: NonNegativeFloat | None = None
    """Wall time billed to it, from the end of the round before it; None until it is over."""

    def key(self, job_id: str) -> AttemptKey:
        """Return the identity of its launch."""
        return AttemptKey(job_id, self.round, self.attempt, self.lease_id)


class OpenGradients(Message):
    """Calls of learner functions of a round, whose bill is not final."""

    round: Count
    lease_id: Identifier
    """Lease they were asked for under."""
    num_calls: Count
    reserved_usd: NonNegativeFloat
    num_billed: Count = 0
    """Ended calls, in order, that are already in the ledger."""

    def key(self, job_id: str) -> AttemptKey:
        """Return the identity of the calls, which are not attempted again as a whole."""
        return AttemptKey(job_id, self.round, 0, self.lease_id)


class PlannedAttempt(Message):
    """One launch of a round."""

    plan: RoundPlan
    lease_id: Identifier
    planned_at: float
    epoch: Identifier | None = None
    """The process that planned it, which alone launches it; None in records of earlier versions."""
    samples: tuple[Count, ...] | None = None
    """Actors it launched; None where that is all of the plan's, and in records of earlier
    versions."""
    evaluations: tuple[Count, ...] | None = None
    """Evaluation episodes it launched; None like `samples`."""
    launches: LaunchCounts | None = None
    """None while invocations are in flight."""

    @property
    def key(self) -> AttemptKey:
        """Identity of the launch."""
        plan = self.plan
        return AttemptKey(plan.job_id, plan.round, plan.attempt, self.lease_id)

    def launched(self, mode: Mode, actor_index: int) -> bool:
        """Whether it launched this actor or episode."""
        indices = self.samples if mode == "sample" else self.evaluations
        return indices is None or actor_index in indices


class RoundEntry(Message):
    """One round of a job."""

    round: Count
    attempts: tuple[PlannedAttempt, ...]
    ratio: FiniteFloat | None
    """Convexity ratio measured in this round; None without one."""
    memory: NoiseMemory | None = None
    """The scaling policy's memory for the next round."""
    result: RoundResult | None = None
    abandoned: bool = False
    """Whether the job ended and was resumed without a result of this round. The learner may still
    have finished the round: its next request shows.
    """

    @property
    def last(self) -> PlannedAttempt:
        """The newest attempt."""
        return self.attempts[-1]
