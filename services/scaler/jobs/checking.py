"""Checks of new jobs whose environment an actor has yet to describe.

A starting actor may take longer than a client waits, so such a job is accepted at once as
`checking`. A background check then queues it, or fails it with the reason. The job is stored, so a
later process continues the check.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus

from services.scaler.book.book import Book
from services.scaler.book.reading import UnreadableError
from services.scaler.book.records import Change, JobRecord
from services.scaler.book.table import StoreError
from services.scaler.jobs.admission import Admission, admitted
from services.scaler.jobs.ending import ended
from services.scaler.money.accounting import Spending
from services.scaler.money.budget import RoundPricing
from services.scaler.refusals import ApiError
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.jobs import StopReason

_LOG = logging.getLogger(__name__)
_AT_ONCE = 8
"""Concurrent descriptions."""
_AGAIN_S = 5.0
"""Pause before a check is repeated that the store kept from being written."""


@dataclass(kw_only=True, eq=False)
class CheckDesk:
    """Checks jobs in the background, a few at a time."""

    book: Book
    admission: Admission
    pricing: RoundPricing
    now: Callable[[], float]
    spending: Spending

    _under_way: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """By job."""
    _wanted: set[str] = field(default_factory=set)
    """Jobs whose check was requested since their last read."""
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    def start(self) -> None:
        """Continue an earlier process's checks."""
        for record in self.book.with_status({"checking"}):
            self.take_up(record.job.job_id)

    def take_up(self, job_id: str) -> None:
        """Check a job soon; harmless to repeat."""
        self._wanted.add(job_id)
        if job_id not in self._under_way:
            self._under_way[job_id] = asyncio.ensure_future(self._check(job_id))

    async def close(self) -> None:
        """End all checks, and wait for their writes; the next process continues them."""
        checks = [*self._under_way.values()]
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)

    async def _check(self, job_id: str) -> None:
        """Check a job until it is no longer `checking`."""
        while True:
            try:
                async with self._turns:
                    self._wanted.discard(job_id)
                    record = await self.book.find(job_id)
                    if record is None or not _waits(record):
                        if job_id in self._wanted:  # asked for again since it was read
                            continue
                        break
                    await self._decide(record)
            except UnreadableError as error:
                # Rereading would not help: the next start continues the check.
                _LOG.error("job not checked", extra={"job": job_id, "why": str(error)})
                break
            except StoreError as error:
                _LOG.warning("job not checked yet", extra={"job": job_id, "why": str(error)})
                await asyncio.sleep(_AGAIN_S)
            except Exception:
                _LOG.exception("job not checked", extra={"job": job_id})
                break
        del self._under_way[job_id]

    async def _decide(self, record: JobRecord) -> None:
        spec = record.job.spec
        try:
            environment = await self.admission.admit(spec, self.pricing)
        except ApiError as error:
            why = "\n".join(f"{e.field}: {e.message}" for e in error.errors) or error.detail
            # If the job is not to blame, a resume may succeed.
            blamed = error.status < HTTPStatus.INTERNAL_SERVER_ERROR
            await self._write(record, partial(self._failed, "refused" if blamed else "error", why))
        except Exception:
            # A job must not wait for ever after its check has ended.
            _LOG.exception("check broke", extra={"job": record.job.job_id})
            why = "the check of the job broke; the scaler's log says where"
            await self._write(record, partial(self._failed, "error", why))
        else:
            await self._write(record, partial(self._admitted, environment))

    async def _write(self, checked: JobRecord, decide: Callable[[JobRecord], Change]) -> None:
        """Write the result of a check, unless the job has changed: then check it again."""
        job_id, spec = checked.job.job_id, checked.job.spec
        record = await self.book.change(
            job_id, lambda now: decide(now) if _waits(now) and now.job.spec == spec else None
        )
        if record is not None:
            _LOG.info("job checked", extra={"job": job_id, "status": record.job.status})

    def _admitted(self, environment: EnvironmentSpec, record: JobRecord) -> Change:
        job = admitted(record.job, environment, self.admission.cache_node)
        updated = {"job": job, "queued_at": self.now()}
        return Change(record=record.model_copy(update=updated))

    def _failed(self, stop_reason: StopReason, why: str, record: JobRecord) -> Change:
        return ended(record, self.spending, self.now(), stop_reason, why)


def _waits(record: JobRecord) -> bool:
    return record.job.status == "checking" and not record.deleting
