"""A page of a job's events."""

from services.scaler.book.book import Book
from services.scaler.book.events import submitted
from services.scaler.book.records import JobRecord
from shared.contracts.views.events import KEPT_EVENTS, EventPage


def event_page(book: Book, record: JobRecord, *, after: int, limit: int) -> EventPage:
    """Return the first kept events after a number."""
    first = [submitted(record.job)] if after < 0 else []
    kept = book.events(record, after=max(0, after), limit=limit - len(first))
    oldest = max(1, record.num_events + 1 - KEPT_EVENTS)
    return EventPage(
        job_id=record.job.job_id,
        events=(*first, *kept),
        last=record.num_events,
        forgotten=max(0, oldest - max(1, after + 1)),
    )
