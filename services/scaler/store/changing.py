"""Changing a job: read it, decide, write; again from the start when somebody was faster."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from services.scaler.store.base import Change, JobRecord, Store, StoreError, VersionConflictError
from services.scaler.store.events import events_of

_MAX_CONFLICTS = 50
T = TypeVar("T")


def change_job(
    store: Store, job_id: str, decide: Callable[[JobRecord], Change | None], *, at: float
) -> JobRecord | None:
    """Read a job, decide, write; again from the start when somebody was faster.

    `decide` may be called more than once, so whatever else it does must be harmless to repeat. When
    it returns None nothing is written. The events of the change happened `at`, in Unix seconds.

    Returns:
        The record after the change, or None when there is no such job.
    """

    def change_once(record: JobRecord) -> JobRecord:
        change = decide(record)
        if change is None:
            return record
        events = events_of(record, change, at=at)
        noted = change.record.model_copy(update={"num_events": record.num_events + len(events)})
        return store.commit(replace(change, record=noted, events=events))

    return _despite_others(store, job_id, change_once, doing="updated")


def delete_job(store: Store, job_id: str) -> None:
    """Remove a job that is marked as deleted; nothing happens if it is gone.

    What its last launches came to may still be booked meanwhile, so it takes more than one try.
    """
    _despite_others(store, job_id, store.delete, doing="deleted")


def _despite_others(
    store: Store, job_id: str, act: Callable[[JobRecord], T], *, doing: str
) -> T | None:
    for _ in range(_MAX_CONFLICTS):
        record = store.job(job_id)
        if record is None:
            return None
        try:
            return act(record)
        except VersionConflictError:
            continue
    raise StoreError(f"job {job_id} was changed {_MAX_CONFLICTS} times while it was being {doing}")
