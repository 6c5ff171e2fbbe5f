"""Which rounds may be asked for when: the order that makes a round launch at most once.

Who asks holds the lease, so whatever is out of order is a 422, which ends the job, and never a
409, which tells a learner that somebody else has it.
"""

from dataclasses import dataclass
from typing import Literal

from services.scaler.problem import ApiError, invalid
from services.scaler.store.base import PlannedAttempt, RoundEntry
from shared.contracts import RoundRequest
from shared.problem import FieldError


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a request stands in the order."""

    kind: Literal["repeat", "reopen", "new", "rewind"]
    stored: PlannedAttempt | None = None
    """The answer to repeat."""


def place(
    last: RoundEntry | None, round_index: int, request: RoundRequest, *, max_attempts: int
) -> Place:
    """Return what a round request asks for, given the newest round.

    A round is the one after the newest, or the newest again: the same attempt gets the same answer,
    the attempt after it reopens the round. A learner that has just taken the job may go back to a
    round that is over, which is where its newest checkpoint says it is.

    Raises:
        ApiError: 422 when the round or attempt is out of order, fields contradict or there have
            been too many attempts.
    """
    newest = -1 if last is None else last.round
    if request.previous is not None and request.previous.round != round_index - 1:
        raise _wrong("previous.round", f"{request.previous.round} is not {round_index - 1}")
    if last is not None and _goes_back(last, round_index, request):
        return Place(kind="rewind")
    if last is not None and round_index == newest:
        return _same_round(last, request, max_attempts)
    if round_index != newest + 1:
        expected = f"{newest} or {newest + 1}" if last is not None else "0"
        raise _wrong("round", f"{round_index} is out of order: expected {expected}")
    if last is not None and last.last.plan.stop is not None:
        raise _wrong(
            "round",
            f"{round_index} is out of order: round {newest} ended the job ({last.last.plan.stop})",
        )
    if request.attempt:
        raise _wrong("attempt", f"{request.attempt} of round {round_index}: 0 comes first")
    return Place(kind="new")


def _goes_back(last: RoundEntry, round_index: int, request: RoundRequest) -> bool:
    ended = last.result is not None or last.abandoned
    over = round_index < last.round or (round_index == last.round and ended)
    just_taken = all(attempt.lease_id != request.lease_id for attempt in last.attempts)
    return over and just_taken and request.attempt == 0


def _same_round(last: RoundEntry, request: RoundRequest, max_attempts: int) -> Place:
    launched = last.last.plan.policy_version
    if request.policy_version != launched:
        raise _wrong(
            "policy_version",
            f"{request.policy_version}, but round {last.round} was launched with {launched}",
        )
    for stored in last.attempts:
        if stored.plan.attempt == request.attempt:
            return Place(kind="repeat", stored=stored)
    newest = last.last.plan
    where = f"attempt {request.attempt} of round {last.round}"
    if request.attempt != newest.attempt + 1:
        raise _wrong("attempt", f"{where} is out of order: the newest is {newest.attempt}")
    if newest.stop is not None:
        raise _wrong("attempt", f"{where}: the round ended the job ({newest.stop})")
    # Counted per lease: a learner that took over a round may reopen it once more.
    reopened = sum(a.plan.attempt > 0 and a.lease_id == request.lease_id for a in last.attempts)
    if reopened + 2 > max_attempts:
        raise _wrong(
            "attempt",
            f"{where}: a round is launched at most {max_attempts} times (NITRO_MAX_ATTEMPTS); too "
            "few of its actors succeed, see the actors' log",
        )
    _check_missing(request, newest.num_actors)
    return Place(kind="reopen")


def _check_missing(request: RoundRequest, num_actors: int) -> None:
    missing = request.missing
    if missing is None:
        return
    if not missing:
        raise _wrong("missing", "is empty: nothing to launch; leave it out to launch all")
    if len(set(missing)) != len(missing) or max(missing) >= num_actors:
        raise _wrong("missing", f"must be distinct actor indices below {num_actors}")


def _wrong(field: str, message: str) -> ApiError:
    return invalid(FieldError(field=field, message=message))
