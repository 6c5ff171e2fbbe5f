"""Every order in which rounds can be asked for, and what comes of it."""

from typing import Literal

import pytest

from services.scaler.book.attempts import PlannedAttempt, RoundEntry
from services.scaler.refusals import ApiError
from services.scaler.rounds.order import RoundsBefore, place
from shared.contracts.jobs import StopReason
from shared.contracts.rounds import LaunchCounts, RoundPlan, RoundRequest
from tests.services.scaler.running import result


def request(*, attempt: int = 0, lease_id: str = "a", **changes: object) -> RoundRequest:
    return RoundRequest.model_validate(
        {"lease_id": lease_id, "policy_version": 3, "attempt": attempt, **changes}
    )


def planned(
    round_index: int, attempt: int, *, lease_id: str = "a", stop: StopReason | None = None
) -> PlannedAttempt:
    plan = RoundPlan(
        job_id="job",
        round=round_index,
        attempt=attempt,
        policy_version=round_index,
        num_actors=4,
        num_evaluations=0,
        requested=4,
        boosting_score=None,
        ratio=None,
        reason="",
        deadline_s=1,
        quorum=2,
        stop=stop,
        spent_usd=0,
        settled=(),
    )
    return PlannedAttempt(plan=plan, lease_id=lease_id, planned_at=0.0)


def entry(*attempts: PlannedAttempt) -> RoundEntry:
    return RoundEntry(round=attempts[0].plan.round, attempts=attempts, ratio=None)


def placed(
    last: RoundEntry | None, round_index: int, asked: RoundRequest
) -> PlannedAttempt | Literal["reopen", "new", "rewind"]:
    before = RoundsBefore(round_index=round_index, open_rounds=1, last=last, near=[])
    return place(before, asked, max_attempts=2)


def test_the_first_round_is_new() -> None:
    assert placed(None, 0, request()) == "new"


def test_the_round_after_the_newest_is_new() -> None:
    last = entry(planned(3, 0))
    assert placed(last, 4, request(previous=result(3))) == "new"
    assert placed(last, 4, request()) == "new"


def test_any_attempt_there_was_is_repeated() -> None:
    first, second = planned(3, 0), planned(3, 1)
    for attempt, stored in ((0, first), (1, second)):
        got = placed(entry(first, second), 3, request(attempt=attempt))
        assert got == stored


def test_a_learner_that_took_over_goes_on_with_the_newest_attempt() -> None:
    last = entry(planned(3, 0), planned(3, 1))
    got = placed(last, 3, request(attempt=0, lease_id="b"))
    assert got == last.last


def test_the_attempt_after_the_newest_reopens() -> None:
    got = placed(entry(planned(3, 0)), 3, request(attempt=1, missing=(1, 3)))
    assert got == "reopen"


def test_a_learner_that_took_over_may_reopen_once_more() -> None:
    last = entry(planned(3, 0), planned(3, 1))
    assert placed(last, 3, request(attempt=2, lease_id="b")) == "reopen"


@pytest.mark.parametrize(("round_index", "over"), [(3, True), (2, False), (0, True)])
def test_a_learner_that_has_just_taken_the_job_may_go_back(round_index: int, over: bool) -> None:
    last = entry(planned(3, 0)).model_copy(update={"result": result(3) if over else None})
    previous = result(round_index - 1) if round_index else None
    asked = request(lease_id="b", policy_version=round_index, previous=previous)
    assert placed(last, round_index, asked) == "rewind"
    own = request(policy_version=round_index, attempt=1, previous=previous)
    with pytest.raises(ApiError):
        placed(last, round_index - 1, own)


@pytest.mark.parametrize(
    ("round_index", "changes", "status"),
    [
        (2, {}, 422),  # over already
        (5, {}, 422),  # skips one
        (4, {"attempt": 1}, 422),  # begins with a reopening
        (3, {"attempt": 2}, 422),  # skips an attempt
        (4, {"previous": result(2)}, 422),
        (3, {"attempt": 1, "missing": ()}, 422),
        (3, {"policy_version": 2}, 422),  # its actors got another policy
        (3, {"attempt": 1, "missing": (4,)}, 422),
        (3, {"attempt": 1, "missing": (1, 1)}, 422),
    ],
)
def test_everything_else_is_refused(
    round_index: int, changes: dict[str, object], status: int
) -> None:
    with pytest.raises(ApiError) as refused:
        placed(entry(planned(3, 0)), round_index, request(**changes))  # type: ignore[arg-type]
    assert refused.value.status == status


def test_the_first_round_cannot_be_skipped() -> None:
    with pytest.raises(ApiError) as refused:
        placed(None, 1, request())
    assert "expected 0" in refused.value.errors[0].message


def test_one_reopening_too_many_is_refused_with_the_setting() -> None:
    with pytest.raises(ApiError) as refused:
        placed(entry(planned(3, 0), planned(3, 1)), 3, request(attempt=2))
    assert refused.value.errors[0].field == "attempt"
    assert "NITRO_MAX_ATTEMPTS" in refused.value.errors[0].message


@pytest.mark.parametrize("how", ["unknown", "vanished"])
def test_a_launch_that_went_with_a_part_of_the_system_does_not_count(how: str) -> None:
    counts = {"requested": 4, "succeeded": 0, "failed": 4, "reissued": 0, "throttled": 0, how: 4}
    gone = planned(3, 0).model_copy(update={"launches": LaunchCounts.model_validate(counts)})
    second, third = planned(3, 1), planned(3, 2)
    assert placed(entry(gone, second), 3, request(attempt=2)) == "reopen"
    with pytest.raises(ApiError):
        placed(entry(gone, second, third), 3, request(attempt=3))


@pytest.mark.parametrize(("round_index", "attempt"), [(4, 0), (3, 1)])
def test_nothing_follows_a_round_that_ended_the_job(round_index: int, attempt: int) -> None:
    last = entry(planned(3, 0, stop="budget"))
    with pytest.raises(ApiError) as refused:
        placed(last, round_index, request(attempt=attempt))
    assert "ended the job" in refused.value.errors[0].message


def rounds(*attempts: PlannedAttempt, over: int = 0) -> list[RoundEntry]:
    """One round per attempt; the first `over` of them have results."""
    entries = [entry(attempt) for attempt in attempts]
    ended = [e.model_copy(update={"result": result(e.round)}) for e in entries[:over]]
    return [*ended, *entries[over:]]


def overlapping(known: list[RoundEntry], index: int, **changes: object) -> str:
    changes = {"policy_version": index, **changes}
    made = request(**changes)  # type: ignore[arg-type]
    near = [e for e in known if index - 2 <= e.round <= index]
    before = RoundsBefore(round_index=index, open_rounds=2, last=known[-1], near=near)
    where = place(before, made, max_attempts=2)
    return where if isinstance(where, str) else "repeat"


def test_of_overlapping_rounds_every_open_one_is_repeated() -> None:
    known = rounds(*(planned(number, 0) for number in range(5)), over=3)
    assert [overlapping(known, index) for index in (3, 4, 5)] == ["repeat", "repeat", "new"]
    assert overlapping(known, 5, previous=result(3)) == "new"
    assert overlapping(known, 3, lease_id="b") == "repeat"
    for index in (0, 2, 6):
        with pytest.raises(ApiError):
            overlapping(known, index)


def test_any_open_round_may_be_launched_again() -> None:
    known = rounds(*(planned(number, 0) for number in range(5)), over=3)
    for index in (3, 4):
        assert overlapping(known, index, attempt=1, missing=(2,)) == "reopen"
    for index in (2, 5):
        with pytest.raises(ApiError):
            overlapping(known, index, attempt=1, missing=(2,))


def test_a_learner_that_has_just_taken_the_job_may_go_back_over_open_rounds() -> None:
    known = rounds(*(planned(number, 0) for number in range(5)), over=3)
    assert [overlapping(known, index, lease_id="b") for index in (0, 2)] == ["rewind", "rewind"]
    resumed = [e if e.result else e.model_copy(update={"abandoned": True}) for e in known]
    assert overlapping(resumed, 3, lease_id="b") == "rewind"


def test_a_job_of_overlapping_rounds_has_as_many_last_plans() -> None:
    known = rounds(planned(0, 0), planned(1, 0), planned(2, 0, stop="budget"), over=1)
    assert overlapping(known, 3) == "new"
    ended = [*known, entry(planned(3, 0, stop="budget"))]
    with pytest.raises(ApiError) as refused:
        overlapping(ended, 4)
    assert "ended the job" in refused.value.errors[0].message
