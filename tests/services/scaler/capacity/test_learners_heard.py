"""Why no learner takes a job, from what learners said and when."""

import math

from services.scaler.book.records import JobRecord, LeaseRecord
from services.scaler.capacity.learners_heard import SILENT_S, LearnersHeard
from shared.contracts.learner_kind import LearnerKind
from tests.services.scaler.book.records import record

NOW = 1000.0


def queued(learner: LearnerKind = "cpu", *, held: bool = False) -> JobRecord:
    made = record()
    lease = LeaseRecord(lease_id="l", learner_id="x", expires_at=NOW + 1e6) if held else None
    job = made.job.model_copy(update={"learner": learner})
    return made.model_copy(update={"job": job, "queued_at": NOW, "lease": lease})


def why(heard: LearnersHeard, *jobs: JobRecord, at: float) -> str | None:
    return heard.why_waits(jobs, "cpu", at)[0]


def test_silence_is_told_after_a_while_and_only_where_a_learner_should_be_there() -> None:
    heard = LearnersHeard(since=0.0)
    late = NOW + SILENT_S
    assert heard.why_waits([queued()], "cpu", NOW + 5.0) == (None, SILENT_S - 5.0)
    assert "none asks for work" in str(why(heard, queued(), at=late))
    assert why(heard, queued("gpu"), at=late) is None
    assert why(heard, at=late) is None
    # A learner that trains any kind is at work: the job's turn comes.
    assert why(heard, queued(), queued("gpu", held=True), at=late) is None
    assert "none asks" in str(why(heard, queued(), queued("external", held=True), at=late))


def test_a_learner_that_asked_lately_may_take_it() -> None:
    heard = LearnersHeard(since=0.0)
    late = NOW + SILENT_S
    assert not heard.note("one", None, None, late)
    assert why(heard, queued(), at=late + 1.0) is None
    heard.note("two", "gpu", None, late + 10.0)
    assert "none asks" in str(why(heard, queued(), at=late + SILENT_S))


def test_trouble_is_told_at_once_unless_another_learner_can_work() -> None:
    heard = LearnersHeard(since=0.0)
    assert heard.note("one", "cpu", "the cache refuses it", NOW)
    assert not heard.note("one", "cpu", "the cache refuses it", NOW + 1.0)
    reason, in_s = heard.why_waits([queued()], "cpu", NOW + 1.0)
    assert "one says: the cache refuses it" in str(reason)
    assert math.isinf(in_s)
    heard.note("two", None, None, NOW + 1.0)
    assert why(heard, queued(), at=NOW + 1.0) is None
    assert heard.note("one", "cpu", None, NOW + 2.0)


def test_who_has_gone_is_forgotten_and_no_more_are_kept_than_needed() -> None:
    heard = LearnersHeard(since=0.0)
    heard.note("one", "cpu", "the cache refuses it", NOW)
    assert "none asks for work" in str(why(heard, queued(), at=NOW + 3600.0))
    for index in range(1000):
        heard.note(f"l{index}", "cpu", "broken", NOW)
    assert len(str(why(heard, queued(), at=NOW))) < 5000


def test_a_learner_that_was_started_for_a_job_speaks_for_that_job_alone() -> None:
    heard = LearnersHeard(since=0.0)
    heard.note("one", "cpu", "the cache refuses it", NOW, job_id="a")
    heard.note("two", "cpu", None, NOW, job_id="b")
    assert "which says: the cache refuses it" in str(heard.trouble_with("a", NOW + 1.0))
    assert heard.trouble_with("b", NOW + 1.0) is None
    assert heard.trouble_with("a", NOW + 3600.0) is None, "it has gone"
    heard.note("three", "cpu", None, NOW + 2.0, job_id="a")
    assert heard.trouble_with("a", NOW + 3.0) is None, "another one was started"
