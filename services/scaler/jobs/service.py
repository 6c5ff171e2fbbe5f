"""The life of a job, as its user sees it.

checking ──(services.scaler.jobs.checking)──▶ queued | failed

queued ──lease──▶ running ──stop──▶ stopping ──finish──▶ succeeded | stopped | failed
   │                 └───────────────finish──────────────▶      │
   └──stop──▶ stopped                                           └──resume──▶ queued
"""

import hashlib
import logging
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from services.scaler.book.book import Book
from services.scaler.book.records import Change, Decide, IdempotencyEntry, JobRecord
from services.scaler.capacity.decision import is_held
from services.scaler.jobs.admission import Admission, admitted, least_learner, warnings_of
from services.scaler.jobs.changes import JobChanges
from services.scaler.jobs.ending import ended
from services.scaler.jobs.resuming import (
    raised,
    require_checkpoint,
    require_no_fresh_schedule,
    require_resumable,
    require_same_spaces,
    resumed,
)
from services.scaler.money.accounting import Spending
from services.scaler.money.budget import RoundPricing
from services.scaler.off_loop import OffLoop
from services.scaler.refusals import ApiError, conflict, found
from shared.artifacts.store import CHECKPOINTS, ArtifactStore
from shared.cache.client import TrajectoryCache
from shared.cache.connection import CacheError
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import FINISHED, Job, NoteRequest, ResumeRequest

_LOG = logging.getLogger(__name__)
_SLUG = re.compile(r"[^a-z0-9]+")
_MAX_SLUG = 40


@dataclass(kw_only=True, eq=False)
class JobService:
    """Creates, shows, stops, resumes and deletes jobs."""

    book: Book
    admission: Admission
    cache: TrajectoryCache
    cache_thread: OffLoop
    threads: OffLoop
    """For other network calls."""
    changes: JobChanges
    files: ArtifactStore
    pricing: RoundPricing
    now: Callable[[], float]
    spending: Spending
    on_checking: Callable[[str], None]
    """Called with a job that waits for an actor to describe its environment."""

    async def create(self, spec: JobSpec, key: str | None) -> tuple[Job, bool]:
        """Queue a job, or check it first; return it and whether it is new.

        Raises:
            ApiError: The job cannot run, or the key was used for another job.
        """
        digest = hashlib.sha256(spec.model_dump_json().encode()).hexdigest()
        known = await self._job_of_key(key, digest)
        if known is not None:
            return known, False
        # Stored with the job, because the preset may change before a resume.
        job = await self._new_job(spec.resolved())
        entry = None
        if key is not None:
            entry = IdempotencyEntry(key=key, body_digest=digest, job_id=job.job_id)
        used = await self.book.create(JobRecord(job=job, queued_at=job.created_at), entry)
        if used is not None:  # the same key, at the same time
            return await self._job_of(used, digest), False
        _LOG.info("job submitted", extra={"job": job.job_id, "status": job.status})
        self._go_on(job)
        return job, True

    async def job(self, job_id: str) -> Job:
        """Return a job."""
        return (await self._record(job_id)).job

    async def stop(self, job_id: str) -> Job:
        """Ask a job to stop after its current update; a job without a learner ends at once."""

        def decide(record: JobRecord) -> Change | None:
            if record.job.status in ("checking", "queued"):
                return ended(record, self.spending, self.now(), "user")
            if record.job.status == "running":
                return Change(record=record.with_job(status="stopping"))
            return None

        job = found(await self.changes.change(job_id, decide), "job", job_id).job
        _LOG.info("job asked to stop", extra={"job": job_id, "status": job.status})
        return job

    async def rewrite_note(self, job_id: str, request: NoteRequest) -> Job:
        """Replace a job's note, which has no effect.

        Raises:
            ApiError: There is no such job, or it is being deleted.
        """

        def decide(record: JobRecord) -> Change | None:
            if record.deleting:
                raise conflict(f"job {job_id} is being deleted")
            spec = record.job.spec.model_copy(update={"note": request.note})
            return Change(record=record.with_job(spec=spec))

        return (await self._changed(job_id, decide)).job

    async def expire(
        self, job_id: str, is_over: Callable[[JobRecord], bool] = lambda _record: True
    ) -> None:
        """End a job at its time limit or its budget, unless it `is_over` neither any more.

        At its budget it is stopped, and can resume with more. At its time limit it fails, unless a
        learner still holds it, whose machine is then turned off. A user's own program cannot be
        turned off: it loses the job.
        """

        def decide(record: JobRecord) -> Change | None:
            now = self.now()
            if record.job.status in FINISHED or not is_over(record):
                return None
            if self.spending.spent_at(record, now) <= now:
                return ended(record, self.spending, now, "budget")
            if is_held(record, now) and record.job.learner != "external":
                return None
            why = f"reached its time limit (NITRO_LONGEST_JOB_S) while {record.job.status}"
            return ended(record, self.spending, now, "error", why)

        await self.changes.change(job_id, decide, waits_for_cache=False)

    async def give_up(self, job_id: str, why: str) -> None:
        """End a job that gets no learner, unless it has one by now.

        A job whose budget is used up is stopped in any case.
        """

        def decide(record: JobRecord) -> Change | None:
            now = self.now()
            if record.job.status in FINISHED:
                return None
            if self.spending.spent_at(record, now) <= now:
                return ended(record, self.spending, now, "budget")
            return None if is_held(record, now) else ended(record, self.spending, now, "error", why)

        await self.changes.change(job_id, decide, waits_for_cache=False)

    async def forsake(self, job_id: str) -> None:
        """End an external job whose client is gone, unless a client holds it."""

        def decide(record: JobRecord) -> Change | None:
            now = self.now()
            if record.job.status in FINISHED or is_held(record, now):
                return None
            asked = record.job.status == "stopping"
            return ended(record, self.spending, now, "user" if asked else "client_gone")

        await self.changes.change(job_id, decide, waits_for_cache=False)

    async def resume(self, job_id: str, request: ResumeRequest) -> Job:
        """Queue a resumable job again, with more budget or rounds if requested.

        An unfinished job only gets the requested limits.

        Raises:
            ApiError: There is no such job, it is in another state, or it could not go on.
        """
        environment, kept = await self._found_now((await self._record(job_id)).job)
        async with self.book.turn(job_id) as turn:
            record = found(turn.record, "job", job_id)
            change = await self._resumed(record, request, environment, kept=kept)
            if change is not None:
                record = await turn.write(change)
        _LOG.info("job resumed", extra={"job": job_id})
        self._go_on(record.job)
        return record.job

    async def _resumed(
        self,
        record: JobRecord,
        request: ResumeRequest,
        environment: EnvironmentSpec | None,
        *,
        kept: bool,
    ) -> Change | None:
        """Return the change that resumes a job; None if no change is needed."""
        job, job_id = record.job, record.job.job_id
        if record.deleting:
            raise conflict(f"job {job_id} is being deleted")
        spec = raised(job.spec, request)
        if job.environment is not None:
            node = self.admission.cache_node
            record = record.with_job(warnings=warnings_of(spec, job.environment, node))
        if job.status in ("checking", "queued", "running"):
            # It continues by itself, even if its learner has just been killed.
            require_no_fresh_schedule(job, spec, request)
            if spec == job.spec:
                return None
            return Change(record=record.with_job(spec=spec, schedule=job.decay))
        require_resumable(record, spec, self.pricing)
        if job.environment is not None:
            require_same_spaces(job.environment, environment or job.environment)
            for error in self.admission.room_errors(spec, job.environment):
                raise conflict(f"job {job_id} does not fit now: {error.message}")
        require_checkpoint(job, kept=kept, from_scratch=request.from_scratch)
        newest = await self.book.look(self.book.newest_rounds, job_id, spec.open_rounds)
        return resumed(record, spec, newest, self.now(), request)

    async def delete(self, job_id: str) -> None:
        """Delete an ended or `checking` job, its artifacts and its cache keys.

        It is marked first, so that a partly failed deletion leaves a job that cannot resume, and
        can be repeated.
        """

        def claim(record: JobRecord) -> Change | None:
            if record.job.status not in (*FINISHED, "checking"):
                raise conflict(f"job {job_id} is {record.job.status}: stop it first")
            marked = record.model_copy(update={"deleting": True})
            return None if record.deleting else Change(record=marked)

        record = await self._changed(job_id, claim)
        number = record.job.spec.open_rounds + 1
        entries = await self.book.look(self.book.newest_rounds, job_id, number)
        versions = {entry.last.plan.policy_version for entry in entries} or {0}
        try:
            await self.cache_thread.run(
                self.cache.forget_job,
                job_id,
                # All rounds: their markers of late results would otherwise stay for an hour.
                rounds=range(entries[-1].round + 1 if entries else 0),
                policy_versions=sorted(versions | {max(versions) + 1}),
            )
        except CacheError as error:  # they expire by themselves
            _LOG.warning("cache keys not removed", extra={"job": job_id, "why": str(error)})
        await self.threads.run(self.files.delete_job, job_id)
        await self.book.delete(job_id)
        _LOG.info("job deleted", extra={"job": job_id})

    async def _new_job(self, spec: JobSpec) -> Job:
        """Return a job to store: admitted, or `checking` if an actor has to be asked."""
        admission, pricing = self.admission, self.pricing
        job = Job(
            job_id=new_job_id(spec.env_id),
            spec=spec,
            learner=least_learner(spec),
            status="checking",
            created_at=self.now(),
        )
        if admission.waits_for_an_actor(spec):
            admission.refuse_at_once(spec, pricing)
            return job
        return admitted(job, await admission.admit(spec, pricing), admission.cache_node)

    async def _found_now(self, job: Job) -> tuple[EnvironmentSpec | None, bool]:
        """Return a job's environment as described now, and whether a checkpoint exists.

        Both are read before the job's turn is taken. A job that continues by itself needs neither.
        """
        if not job.can_go_on or job.learner == "external":
            return None, True
        kept = bool(await self.threads.run(self.files.names, job.job_id, CHECKPOINTS))
        if job.environment is None:
            return None, kept
        return await self.admission.catalogue.describe(job.spec.environment_ref), kept

    def _go_on(self, job: Job) -> None:
        if job.status == "checking":
            self.on_checking(job.job_id)

    async def _job_of_key(self, key: str | None, digest: str) -> Job | None:
        entry = None if key is None else await self.book.look(self.book.idempotency, key)
        return None if entry is None else await self._job_of(entry, digest)

    async def _job_of(self, entry: IdempotencyEntry, digest: str) -> Job:
        if entry.body_digest != digest:
            raise ApiError(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"Idempotency-Key {entry.key!r} was used for job {entry.job_id} with another "
                "specification; use a new key",
            )
        return (await self._record(entry.job_id)).job

    async def _record(self, job_id: str) -> JobRecord:
        return found(await self.book.find(job_id), "job", job_id)

    async def _changed(self, job_id: str, decide: Decide) -> JobRecord:
        return found(await self.book.change(job_id, decide), "job", job_id)


def new_job_id(env_id: str) -> str:
    """Return a new id that shows the environment, such as `hopper-v5-3f9a1c2b`."""
    slug = _SLUG.sub("-", env_id.lower())[:_MAX_SLUG].strip("-")
    return f"{slug}-{secrets.token_hex(4)}"
