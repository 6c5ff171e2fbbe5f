"""A job's events, derived from its changes. Pure: two records in, events out.

Every change passes here, so no event is missed.
"""

from collections.abc import Iterator

from services.scaler.book.attempts import OpenAttempt
from services.scaler.book.records import Change, JobRecord
from shared.contracts.jobs import FINISHED, Job
from shared.contracts.rounds import LaunchCounts
from shared.contracts.views.events import LONGEST_TEXT, EventKind, JobEvent


def events_of(record: JobRecord, change: Change, *, at: float) -> tuple[JobEvent, ...]:
    """Return a change's events, `at` in Unix seconds, numbered after the record's events."""
    told = [*_of_job(record, change), *_of_rounds(record, change), *_of_warmth(record, change)]
    first = record.num_events + 1
    return tuple(
        JobEvent.model_validate({**event, "number": number, "at": at})
        for number, event in enumerate(told, first)
    )


def submitted(job: Job) -> JobEvent:
    """Return a job's first event, which is not stored."""
    text = f"{job.spec.env_id}, {job.spec.algorithm} ({job.spec.preset}), seed {job.spec.seed}"
    return JobEvent(number=0, at=job.created_at, kind="submitted", text=text)


def _event(
    kind: EventKind, text: str, *, of: OpenAttempt | None = None, count: int | None = None
) -> dict[str, object]:
    where = {} if of is None else {"round": of.round, "attempt": of.attempt}
    # A store refuses records with lone surrogates.
    whole = text[:LONGEST_TEXT].encode("utf-8", "replace").decode("utf-8")
    return {"kind": kind, "text": whole, "count": count, **where}


def _of_job(record: JobRecord, change: Change) -> Iterator[dict[str, object]]:
    before, after = record.lease, change.record.lease
    if after is not None and (before is None or before.lease_id != after.lease_id):
        if before is not None:
            yield _event("lease_lost", f"{before.learner_id} has not been heard of")
        yield _event("claimed", f"{after.learner_id} trains it")
    old, new = record.job, change.record.job
    if new.switches != old.switches and new.switches:
        switch = new.switches[-1]
        text = f"{switch.scaling.policy} from round {switch.round} on"
        yield {**_event("scaling_switched", text), "round": switch.round}
    if new.status not in (old.status, "running"):  # the lease's event covers `running`
        yield _of_status(old, new)


def _of_status(old: Job, new: Job) -> dict[str, object]:
    if new.status in FINISHED:
        refused = new.stop_reason == "refused"
        why = new.error or new.stop_reason or ""
        return _event("refused" if refused else "ended", f"{new.status}: {why}")
    if old.status in FINISHED:
        steps = new.spec.stop.ending_steps
        done = f"{new.progress.rounds} of {new.spec.stop.max_rounds} rounds done"
        if steps is not None:
            done = f"{new.progress.env_steps:,} of {steps:,} steps done"
        return _event("resumed", done)
    if new.status == "stopping":
        return _event("stop_asked", "it ends after its current update")
    if old.status == "running" and new.status == "queued":
        return _event("handed_back", "it waits for another learner")
    return _event("queued", "its environment is known: it waits for a learner")


def _of_rounds(record: JobRecord, change: Change) -> Iterator[dict[str, object]]:
    job_id, first = record.job.job_id, change.forget_rounds_from
    if first is not None:
        text = f"the newest checkpoint is before round {first}, which is repeated"
        yield {**_event("rewound", text), "round": first}
    plans = {planned.key: planned for entry in change.rounds for planned in entry.attempts}
    known = {attempt.key(job_id): attempt for attempt in record.open_attempts}
    for attempt in change.record.open_attempts:
        key = attempt.key(job_id)
        planned = plans.get(key)
        if key in known or planned is None or not attempt.num_invocations:
            continue
        episodes = attempt.num_evaluations
        actors = attempt.num_invocations - episodes
        kind: EventKind = "reopened" if attempt.attempt else "launched"
        beside = f" and {episodes} evaluation episodes" if episodes else ""
        text = f"{actors} actors{beside}: {planned.plan.reason}"
        yield _event(kind, text, of=attempt, count=attempt.num_invocations)
    still_open = {a.key(job_id) for a in change.record.open_attempts if a.outcome is None}
    for key, attempt in known.items():
        planned = plans.get(key)
        landed = attempt.outcome is None and key not in still_open
        if landed and planned is not None and planned.launches is not None:
            yield from _of_landing(attempt, planned.launches)


def _of_landing(attempt: OpenAttempt, counts: LaunchCounts) -> Iterator[dict[str, object]]:
    why = counts.latest_failure or "the scaler was restarted meanwhile"
    lost, retried = counts.failed + counts.unknown, counts.reissued + counts.unreached
    if retried:
        yield _event("actors_retried", f"{retried} tries failed: {why}", of=attempt, count=retried)
    if lost:
        yield _event("actors_lost", f"{lost} actors lost: {why}", of=attempt, count=lost)


def _of_warmth(record: JobRecord, change: Change) -> Iterator[dict[str, object]]:
    old, new = record.warm, change.record.warm
    if new is not None and new != old:
        yield _event("warm_changed", f"keeps {new} environments warm", count=new)
