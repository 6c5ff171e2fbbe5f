"""Going back to a round that is over, for a learner whose newest checkpoint lies before it.

That is so after a resume, when the job had ended in the middle of a round, and when checkpoints
are gone. Rounds from there on are made again: their plans and results are forgotten, here and in
the cache; what they have cost is not.
"""

import logging
from dataclasses import replace

from services.scaler.book.book import Book
from services.scaler.book.records import JobRecord
from services.scaler.rounds.order import RoundsBefore

_LOG = logging.getLogger(__name__)


def rewound(book: Book, record: JobRecord, before: RoundsBefore) -> tuple[JobRecord, RoundsBefore]:
    """Return the job and its rounds as they are without the one asked for and later ones.

    The caller removes those from the cache, and from the book with the change of the record.
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
            # Fewer than `round_index` when the result of a round before it is not told yet.
            "rounds": min(job.progress.rounds, round_index),
            "env_steps": max(0, job.progress.env_steps - sum(r.env_steps for r in undone)),
        }
    )
    if undone:
        # With the policies go their evaluations, that after the last round among them.
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
