"""Whether new jobs can run, while an actor has yet to describe their environment.

An actor that starts may take longer than anybody waits for an answer, so such a job is taken in at
once, as `checking`, and looked at here: it then is queued, or has failed with what is wrong. It is
in the store all the while; a later process takes up what an earlier one left.
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
"""Actors that describe environments at the same time."""
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
    """Jobs that were to be checked since they were last read."""
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    def start(self) -> None:
        """Take up what an earlier process left."""
        for record in self.book.with_status({"checking"}):
            self.take_up(record.job.job_id)

    def take_up(self, job_id: str) -> None:
        """Check a job soon; harmless to repeat."""
        self._wanted.add(job_id)
        if job_id not in self._under_way:
            self._under_way[job_id] = asyncio.ensure_future(self._check(job_id))

    async def close(self) -> None:
        """End all checks, and wait for their writes; the next process takes the jobs up."""
        checks = [*self._under_way.values()]
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)

    async def _check(self, job_id: str) -> None:
        """Check a job until it waits for that no more."""
        while True:
            try:
                async with self._turns:
                    self._wanted.discard(job_id)
                    record = await self.book.find(job_id)
                    if record is None or not _waits(record):
                        if job_id in self._wanted:  # it may wait again since it was read
                            continue
                        break
                    await self._decide(record)
            except UnreadableError as error:
                # Reading it again would not help: the next start takes it up.
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
            # What the job cannot be blamed for may go well when it is resumed.
            blamed = error.status < HTTPStatus.INTERNAL_SERVER_ERROR
            await self._write(record, partial(self._failed, "refused" if blamed else "error", why))
        except Exception:
            # A job that nobody looks at any more must not wait for ever.
            _LOG.exception("check broke", extra={"job": record.job.job_id})
            why = "the check of the job broke; the scaler's log says where"
            await self._write(record, partial(self._failed, "error", why))
        else:
            await self._write(record, partial(self._admitted, environment))

    async def _write(self, checked: JobRecord, decide: Callable[[JobRecord], Change]) -> None:
        """Write what a check found, unless the job is another by now: then it is checked again."""
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
