"""A job's note, which people may rewrite at any time: it decides nothing."""

from services.scaler.book.book import Book
from services.scaler.book.records import Change, JobRecord
from services.scaler.refusals import conflict, found
from shared.contracts.jobs import Job, NoteRequest


async def rewrite_note(book: Book, job_id: str, request: NoteRequest, *, now: float) -> Job:
    """Replace a job's note.

    Raises:
        ApiError: There is no such job, or it is being deleted.
    """

    def decide(record: JobRecord) -> Change | None:
        if record.deleting:
            raise conflict(f"job {job_id} is being deleted")
        spec = record.job.spec.model_copy(update={"note": request.note})
        job = record.job.model_copy(update={"spec": spec})
        return Change(record=record.model_copy(update={"job": job}))

    return found(await book.change(job_id, decide), "job", job_id).job
