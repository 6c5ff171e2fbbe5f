"""The order of round requests, by which a round is launched at most once.

The caller holds the lease. So a request out of order is a 422, which ends the job, and never a 409,
which tells a learner that another one has the job.

A job keeps `open_rounds` rounds open: one, or several if its algorithm learns off-policy. Round k
is requested when round `k - open_rounds` is over, with its result; the first requests have none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from services.scaler.book.attempts import PlannedAttempt, RoundEntry
from services.scaler.book.book import Book
from services.scaler.book.records import JobRecord
from services.scaler.refusals import ApiError, invalid
from services.scaler.scaling.base import NoiseMemory
from shared.contracts.jobs import Job, StopReason
from shared.contracts.problem import FieldError
from shared.contracts.rounds import RoundPlan, RoundRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsBefore:
    """A requested round, and the entries of it and of the rounds before it."""

    round_index: int
    """The requested round."""
    open_rounds: int
    """Rounds the job keeps open at a time."""
    last: RoundEntry | None
    """The newest round before it, or the round itself if it is launched again."""
    near: list[RoundEntry]
    """The round and the `open_rounds` before it, if any. Empty if one round is open at a time: then
    only the newest matters."""
    reopened: bool = False
    """Whether it is launched again."""

    @classmethod
    def read(cls, book: Book, job: Job, round_index: int) -> Self:
        """Read the entries from the book."""
        open_rounds, near = job.spec.open_rounds, []
        if open_rounds > 1:
            first = max(0, round_index - open_rounds)
            near = book.rounds(job.job_id, first=first, limit=round_index + 1 - first)
        return cls(
            round_index=round_index,
            open_rounds=open_rounds,
            last=book.last_round(job.job_id),
            near=near,
        )

    @property
    def known(self) -> list[RoundEntry]:
        """The newest round, and the near ones."""
        return self.near if self.last is None else [self.last, *self.near]

    @property
    def reopening(self) -> RoundEntry | None:
        """The round, if it is launched again."""
        asked = (entry for entry in self.known if entry.round == self.round_index)
        return next(asked, None) if self.reopened else None

    @property
    def ended(self) -> RoundEntry | None:
        """The round that ends with this request, if any."""
        if self.reopened:
            return None
        if self.open_rounds == 1:
            return self.last
        return next((e for e in self.near if e.round == self.through), None)

    @property
    def through(self) -> int | None:
        """Newest round that is over; None if the requested round is the only open one."""
        return None if self.open_rounds == 1 else self.round_index - self.open_rounds

    def memory_of(self, policy: str, job: Job) -> NoiseMemory | None:
        """Return the policy's memory of the previous round, if it was in force then."""
        last = None if self.reopened else self.last
        known = last is not None and job.scaling_of(last.round).policy == policy
        return last.memory if last is not None and known else None

    @property
    def num_stops(self) -> int:
        """Number of plans directly before this one that end the job."""
        stops = {entry.round for entry in self.known if entry.last.plan.stop is not None}
        count = 0
        while self.round_index - 1 - count in stops:
            count += 1
        return count

    @property
    def stop(self) -> tuple[StopReason, str] | None:
        """Why the job ends, if an earlier plan said so."""
        plans = (e.last.plan for e in self.known if e.round == self.round_index - 1)
        return next(((plan.stop, plan.reason) for plan in plans if plan.stop is not None), None)


def place(
    before: RoundsBefore, request: RoundRequest, *, max_attempts: int
) -> PlannedAttempt | Literal["reopen", "new", "rewind"]:
    """Return the stored plan that answers a request, or else the kind of the request.

    A request names the round after the newest, or an open one again. The same attempt gets the same
    answer; the next attempt reopens the round. A learner that has just taken the job knows no
    attempts, so it continues with the newest. It may also return to a round that is over, if its
    newest checkpoint is before it.

    Raises:
        ApiError: 422 when the round or attempt is out of order, fields contradict or there have
            been more than `max_attempts`.
    """
    round_index, last, ends = (
        before.round_index,
        before.last,
        before.round_index - before.open_rounds,
    )
    newest = -1 if last is None else last.round
    if request.previous is not None and request.previous.round != ends:
        raise _wrong("previous.round", f"{request.previous.round} is not {ends}")
    asked = next((entry for entry in before.known if entry.round == round_index), None)
    if last is not None and _goes_back(last, asked, round_index, request):
        return "rewind"
    if asked is not None and (asked is last or asked.result is None):
        return _same_round(asked, request, max_attempts)
    if round_index != newest + 1:
        expected = f"{newest} or {newest + 1}" if last is not None else "0"
        raise _wrong("round", f"{round_index} is out of order: expected {expected}")
    if last is not None and before.num_stops >= before.open_rounds:
        raise _wrong(
            "round",
            f"{round_index} is out of order: round {newest} ended the job ({last.last.plan.stop})",
        )
    if request.attempt:
        raise _wrong("attempt", f"{request.attempt} of round {round_index}: 0 comes first")
    return "new"


def _goes_back(
    last: RoundEntry, asked: RoundEntry | None, round_index: int, request: RoundRequest
) -> bool:
    if round_index > last.round:
        return False
    over = asked is None or asked.result is not None or asked.abandoned
    just_taken = all(attempt.lease_id != request.lease_id for attempt in last.attempts)
    return over and just_taken and request.attempt == 0


def _same_round(
    last: RoundEntry, request: RoundRequest, max_attempts: int
) -> PlannedAttempt | Literal["reopen"]:
    launched = last.last.plan.policy_version
    if request.policy_version != launched:
        raise _wrong(
            "policy_version",
            f"{request.policy_version}, but round {last.round} was launched with {launched}",
        )
    if request.attempt == 0 and last.last.lease_id != request.lease_id:
        # Tasks that failed in an earlier attempt have been launched again.
        return last.last
    for stored in last.attempts:
        if stored.plan.attempt == request.attempt:
            return stored
    newest = last.last.plan
    where = f"attempt {request.attempt} of round {last.round}"
    if request.attempt != newest.attempt + 1:
        raise _wrong("attempt", f"{where} is out of order: the newest is {newest.attempt}")
    if newest.stop is not None and request.missing != ():
        raise _wrong("attempt", f"{where}: the round ended the job ({newest.stop})")
    # Counted per lease: a learner that took over a round may reopen it once more. A launch that
    # was lost with a part of the system does not count: it says nothing about the actors.
    fair = sum(
        (attempt.plan.attempt == 0 or attempt.lease_id == request.lease_id)
        and not (attempt.launches and (attempt.launches.unknown or attempt.launches.vanished))
        for attempt in last.attempts
    )
    if fair >= max_attempts:
        raise _wrong(
            "attempt",
            f"{where}: a round is launched at most {max_attempts} times (NITRO_MAX_ATTEMPTS); too "
            "few of its actors succeed, see the actors' log",
        )
    _check_missing(request, newest)
    return "reopen"


def _check_missing(request: RoundRequest, newest: RoundPlan) -> None:
    episodes, missing = request.missing_evaluations, request.missing
    if missing == () and not episodes:
        raise _wrong("missing", "is empty: nothing to launch; leave it out to launch all")
    _check_indices("missing", missing or (), newest.num_actors)
    _check_indices("missing_evaluations", episodes, newest.num_evaluations)


def _check_indices(field: str, indices: Sequence[int], number: int) -> None:
    if len(set(indices)) != len(indices) or max(indices, default=-1) >= number:
        raise _wrong(field, f"must be distinct actor indices below {number}")


def _wrong(field: str, message: str) -> ApiError:
    return invalid(FieldError(field=field, message=message))


def check_external(record: JobRecord, request: RoundRequest) -> None:
    """Refuse a number of actors, or an end, that the caller may not decide.

    Raises:
        ApiError: The job is not external, or the number is outside its range.
    """
    number, actors = request.num_actors, record.job.spec.actors
    for field in ("num_actors", "ends"):
        if getattr(request, field) is not None and record.job.learner != "external":
            message = "is for external jobs: about this one the scaler decides"
            raise invalid(FieldError(field=field, message=message))
    if number is not None and not actors.min <= number <= actors.max:
        message = f"{number} is outside the job's actors [{actors.min}, {actors.max}]"
        raise invalid(FieldError(field="num_actors", message=message))
