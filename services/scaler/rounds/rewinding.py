"""Returns to a round that is over, for a learner whose newest checkpoint is before it.

That happens if a resumed job had ended in the middle of a round, or if checkpoints are lost. Rounds
from there on are repeated: their plans and results are removed from the book and the cache. Their
costs stay.
"""

import logging
from dataclasses import replace

from services.scaler.book.book import Book
from services.scaler.book.records import JobRecord
from services.scaler.rounds.order import RoundsBefore

_LOG = logging.getLogger(__name__)


def rewound(book: Book, record: JobRecord, before: RoundsBefore) -> tuple[JobRecord, RoundsBefore]:
    """Return the job and its rounds without the requested round and later ones.

    The caller removes these from the cache, and from the book with the record's change.
    """
    job, round_index = record.job, before.round_index
    newest = round_index if before.last is None else before.last.round
    again = book.rounds(job.job_id, first=round_index, limit=newest - round_index + 1)
    _LOG.warning(
        "rounds are made again: the newest checkpoint lies before them",
        extra={"job": job.job_id, "from": round_index, "to": newest},
    )
    undone = [entry.result for entry in again if entry.result is not None]
    progress = job.progress.model_copy(
        update={
            # Fewer than `round_index` if the result of a round before it is not reported yet.
            "rounds": min(job.progress.rounds, round_index),
            "env_steps": max(0, job.progress.env_steps - sum(r.env_steps for r in undone)),
        }
    )
    if undone:
        # The policies' evaluations go with them, including the one after the last round.
        kept = book.rounds(job.job_id, first=0, limit=round_index) if round_index else []
        results = (entry.result for entry in kept if entry.result is not None)
        told = (r.evaluation.mean_return for r in results if r.evaluation is not None)
        means = [mean for mean in told if mean is not None]
        returns = {
            "last_return": means[-1] if means else None,
            "best_return": max(means, default=None),
        }
        progress = progress.model_copy(update=returns)
    record = record.with_job(progress=progress).model_copy(update={"rewinds": record.rewinds + 1})
    return record, replace(before, last=book.round(job.job_id, round_index - 1))
