"""Whether an ended job may resume, and how it is queued again; pure functions."""

import math
from collections.abc import Sequence

from services.scaler.book.attempts import RoundEntry
from services.scaler.book.records import Change, JobRecord
from services.scaler.jobs.admission import budget_errors
from services.scaler.money.budget import RoundPricing, least_pricing
from services.scaler.refusals import conflict, refuse_wrong
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, ResumeRequest, Schedule
from shared.contracts.problem import FieldError


def raised(spec: JobSpec, request: ResumeRequest) -> JobSpec:
    """Return a job with its new limits.

    Raises:
        ApiError: One of them is below the job's.
    """
    errors: list[FieldError] = []
    limits: dict[str, float | None] = {}
    for name in ("budget_usd", "max_rounds", "max_env_steps", "max_wall_s"):
        own, asked = getattr(spec.stop, name), getattr(request, name)
        if asked is not None and asked < (math.inf if own is None else own):
            uncapped = own is None or (name == "budget_usd" and not spec.stop.is_capped)
            message = f"the job has no such limit, and a limit can only rise; got {asked:.12g}"
            if not uncapped:
                message = f"{asked:.12g} is below the job's {own:.12g}; it can only rise"
            errors.append(FieldError(field=name, message=message))
        limits[name] = own if asked is None else asked
    refuse_wrong(errors)
    return spec.model_copy(update={"stop": spec.stop.model_copy(update=limits)})


def require_resumable(record: JobRecord, spec: JobSpec, pricing: RoundPricing) -> None:
    """Check that a job can resume with a specification: with rounds, time and money left.

    Raises:
        ApiError: It cannot; names the fields.
    """
    job, stop = record.job, spec.stop
    if job.learner == "external":
        raise conflict(
            f"job {job.job_id} is external: only its client had the policy; open a new ActorPool"
        )
    if not job.can_go_on:
        raise conflict(
            f"job {job.job_id} is {job.status} ({job.stop_reason or 'not ended'}): only a job "
            "that was stopped, failed, or finished its rounds below its target can resume"
        )
    errors = []
    if stop.max_rounds <= job.progress.rounds:
        message = f"rounds done already: {job.progress.rounds}; use a larger number"
        errors.append(FieldError(field="max_rounds", message=message))
    if stop.max_env_steps is not None and job.progress.env_steps >= stop.max_env_steps:
        message = f"{job.progress.env_steps:,} are done already; ask for more than that"
        errors.append(FieldError(field="max_env_steps", message=message))
    if stop.max_wall_s is not None and record.wall_used_s >= stop.max_wall_s:
        message = f"{record.wall_used_s:.0f} s have passed already; use a larger number"
        errors.append(FieldError(field="max_wall_s", message=message))
    pricing = least_pricing(spec, job.learner, pricing).after(record.longest_learner_s)
    for error in budget_errors(spec, pricing, committed_usd=record.committed_usd):
        errors.append(FieldError(field="budget_usd", message=error.message))
    refuse_wrong(errors)


def require_same_spaces(before: EnvironmentSpec, now: EnvironmentSpec) -> None:
    """Refuse to resume in an environment whose observations or actions have changed.

    Raises:
        ApiError: They have; says which.
    """
    for what in ("observation", "action"):
        was, is_now = getattr(before, what), getattr(now, what)
        if what == "observation" and not was.parts:  # earlier versions did not record them
            is_now = is_now.model_copy(update={"parts": ()})
        if is_now != was:
            message = f"{before.env_id!r}: its {what}s were {was!r}, and now are {is_now!r}"
            refuse_wrong([FieldError(field="env_id", message=message)])


def require_checkpoint(job: Job, *, kept: bool, from_scratch: bool) -> None:
    """Refuse to pay for rounds a second time without `from_scratch`.

    Raises:
        ApiError: It has rounds but no `kept` checkpoint, or a checkpoint that would be ignored.
    """
    if not job.progress.rounds:
        return
    if not kept and not from_scratch:
        raise conflict(
            f"job {job.job_id} has no checkpoint any more: its run folder was removed. Restore the "
            "folder, or set from_scratch (--from-scratch): that repeats and bills its rounds "
            f"again ({job.progress.rounds} so far)"
        )
    if kept and from_scratch:
        raise conflict(
            f"job {job.job_id} has a checkpoint and continues from it: remove from_scratch, or "
            "submit a new job"
        )


def require_no_fresh_schedule(job: Job, spec: JobSpec, request: ResumeRequest) -> None:
    """Refuse a new schedule for a queued or running job, unless it already has it.

    Raises:
        ApiError: It has another one; says what to do.
    """
    if request.fresh_schedule and job.decay != following_schedule(job, spec, request):
        raise conflict(
            f"job {job.job_id} is {job.status}, and its learner keeps its schedule: remove "
            "fresh_schedule (--fresh-schedule), or stop the job first and then resume it"
        )


def following_schedule(job: Job, spec: JobSpec, request: ResumeRequest) -> Schedule:
    """Return the rounds over which the step size decays after a resume.

    A job that repeats all its rounds starts with the full step size, too.
    """
    end = spec.stop.max_rounds if request.fresh_schedule else job.decay.end
    if request.from_scratch:
        return Schedule(end=end)
    return Schedule(first=job.progress.rounds, end=end) if request.fresh_schedule else job.decay


def resumed(
    record: JobRecord,
    spec: JobSpec,
    newest: Sequence[RoundEntry],
    now: float,
    request: ResumeRequest,
) -> Change:
    """Return the change that queues a job again.

    Its newest rounds without a result are marked: the next learner either continues after them, if
    their checkpoint exists, or requests them again for new plans.
    """
    marked = tuple(
        entry.model_copy(update={"abandoned": True}) for entry in newest if entry.result is None
    )
    record = record.with_job(
        spec=spec,
        schedule=following_schedule(record.job, spec, request),
        status="queued" if record.job.environment else "checking",
        stop_reason=None,
        error=None,
        fails_again=False,
        finished_at=None,
    )
    updated = {
        "finished_lease_id": None,
        "wall_started_at": None,
        "exhausted": False,
        "lost_leases": 0,
        "queued_at": now,
    }
    return Change(record=record.model_copy(update=updated), rounds=marked)
