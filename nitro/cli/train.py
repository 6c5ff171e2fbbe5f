"""`nitro train`: submit or resume a job, show it, and say what came of it."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TextIO

from pydantic import JsonValue
from rich.console import Console

from nitro.cli.conclusion import conclude
from nitro.cli.interrupts import Interrupts
from nitro.cli.progress import LineView, LiveView, progress_view
from nitro.client.client import ApiError, ApiUnreachableError, NitroClient, require_admitted
from nitro.client.follow import Snapshot, follow
from nitro.errors import CommandError
from nitro.local.system import LocalSystem
from nitro.runs.reading import read_job
from nitro.spec.advice import advice, gpu_less_cores
from nitro.spec.scaling_option import parse_scaling
from nitro.spec.spec_file import parse_actors
from nitro.spec.starting_job import train_spec
from nitro.spec.total_steps import parse_steps
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import FINISHED, Job, JobStatus

_LOOK_S = 0.05
_LEFT_OVER_S = 60.0
"""How long the learner may take to end what was left open: its dead predecessor's lease has to run
out first."""
_UNFINISHED: tuple[JobStatus, ...] = ("checking", "queued", "running", "stopping")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRequest:
    """What to train and how to tell."""

    spec: JobSpec | None
    """None resumes `resume`."""
    resume: str | None = None
    resume_rounds: int | None = None
    resume_budget_usd: float | None = None
    resume_wall_s: float | None = None
    from_scratch: bool = False
    idempotency_key: str | None = None
    runs_dir: Path
    as_json: bool


def make_request(
    fields: Mapping[str, JsonValue],
    *,
    actors: str | None,
    scaling: str | None,
    max_rounds: int | None,
    total_steps: str | None,
    budget_usd: float | None,
    max_wall_s: float | None,
    assignments: Sequence[str],
    spec_file: Path | None,
    resume: str | None,
    from_scratch: bool,
    idempotency_key: str | None,
    runs_dir: Path,
    as_json: bool,
) -> TrainRequest:
    """Return what the options of `nitro train` ask for; None is not given.

    `fields` are values by dotted path in the job's specification; `actors`, `scaling` and
    `total_steps` are short ways to write theirs.

    Raises:
        CommandError: A field is wrong, or something is given that a resumed job cannot change.
    """
    given = {path: value for path, value in fields.items() if value is not None}
    if actors:
        given["actors"] = parse_actors(actors)
    if scaling:
        given["scaling"] = parse_scaling(scaling, runs_dir=runs_dir)
    spec: JobSpec | None = None
    if from_scratch and resume is None:
        raise CommandError("--from-scratch: belongs to --resume; a new job begins there anyway")
    if resume is None:
        limits = {
            "stop.max_rounds": max_rounds,
            "stop.budget_usd": budget_usd,
            "stop.max_wall_s": max_wall_s,
        }
        given |= {path: value for path, value in limits.items() if value is not None}
        spec = train_spec(
            file=spec_file,
            options=given,
            assignments=assignments,
            total_steps=None if total_steps is None else parse_steps(total_steps),
        )
    elif given or spec_file or assignments or idempotency_key or total_steps:
        raise CommandError(
            "--resume: the job continues as it was specified; only --rounds, --budget-usd and "
            "--max-wall-s can be added"
        )
    return TrainRequest(
        spec=spec,
        resume=resume,
        resume_rounds=max_rounds,
        resume_budget_usd=budget_usd,
        resume_wall_s=max_wall_s,
        from_scratch=from_scratch,
        idempotency_key=idempotency_key,
        runs_dir=runs_dir,
        as_json=as_json,
    )


def most_actors(request: TrainRequest) -> int:
    """Return how many actors a round of the job may have; 0 where the job is not known here."""
    if request.spec is not None:
        return request.spec.actors.max
    if request.resume is None:
        return 0
    try:
        return read_job(request.runs_dir / request.resume).spec.actors.max
    except CommandError:
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """A REST API to train against."""

    client: NitroClient
    system: LocalSystem | None = None
    """The processes behind it, if they are ours."""

    def check(self) -> None:
        """Raise if the API cannot do its work any more."""
        if self.system is not None:
            self.system.check()

    def wait_ready(self) -> None:
        """Wait for what a job needs beyond being submitted."""
        if self.system is not None:
            self.system.wait_ready()


def train(request: TrainRequest, api: Api, *, interrupts: Interrupts, stdout: TextIO) -> int:
    """Train to the end and return the exit code."""
    console = Console(file=None if request.as_json else stdout, stderr=request.as_json)
    keyed = request.idempotency_key is not None
    if api.system is not None:
        # An idempotency key may name one of those that wait or run: told only after submitting.
        statuses = ("stopping",) if keyed else _UNFINISHED
        end_left_over(api, statuses, keep=request.resume, console=console, pause=interrupts.pause)
    job = _begin(request, api, interrupts)
    interrupts.armed = True
    if api.system is not None and keyed:
        waiting: tuple[JobStatus, ...] = ("checking", "queued", "running")
        _stop_left_over(api.client, waiting, keep=job.job_id, console=console)
    with progress_view(console) as view:
        view.note(f"job {job.job_id}")
        try:
            snapshot = _watch(job.job_id, api, interrupts, view)
        except (KeyboardInterrupt, SystemExit, CommandError):
            view.note(_left(job.job_id, api))
            raise
    require_admitted(snapshot.job)
    return conclude(
        snapshot,
        client=api.client,
        system=api.system,
        runs_dir=request.runs_dir,
        as_json=request.as_json,
        console=console,
        stdout=stdout,
    )


def _left(job_id: str, api: Api) -> str:
    """Say what becomes of a job that nobody follows any more."""
    if api.system is not None:
        return f"cut short; continue with: nitro train --resume {job_id}"
    return (
        "unless it was told to stop, the job runs on without this command, and costs money; see it "
        f"with: nitro jobs show {job_id}; end it with: nitro jobs stop {job_id}"
    )


def _begin(request: TrainRequest, api: Api, interrupts: Interrupts) -> Job:
    if request.spec is not None:
        return api.client.submit(request.spec, idempotency_key=request.idempotency_key)
    if request.resume is None:
        raise CommandError("nothing to train: give a specification or --resume JOB_ID")
    if api.client.get(request.resume).status == "stopping":
        # Its learner was killed before it had stopped; ours ends it properly first.
        for _ in follow(api.client, request.resume, check=api.check, pause=interrupts.pause):
            pass
    return api.client.resume(
        request.resume,
        budget_usd=request.resume_budget_usd,
        max_rounds=request.resume_rounds,
        max_wall_s=request.resume_wall_s,
        from_scratch=request.from_scratch,
    )


def end_left_over(
    api: Api,
    statuses: Sequence[JobStatus] = _UNFINISHED,
    *,
    keep: str | None,
    console: Console,
    pause: Callable[[float], object],
) -> None:
    """Stop jobs a killed system left open, and wait until the learner has ended them.

    It would go on with them before the next job, or never get to those that were told to stop: the
    next job is free at once. Until they have ended, actors are kept warm for them.
    """
    waiting = _stop_left_over(api.client, statuses, keep=keep, console=console)
    if waiting:
        console.print("waiting until the learner has ended what was running", style="yellow")
    deadline = monotonic() + _LEFT_OVER_S
    while waiting and monotonic() < deadline:
        api.check()
        pause(_LOOK_S)
        waiting = [job_id for job_id in waiting if api.client.get(job_id).status not in FINISHED]
    for job_id in waiting:
        console.print(f"{job_id} has not ended yet", style="yellow", soft_wrap=True)


def _stop_left_over(
    client: NitroClient, statuses: Sequence[JobStatus], *, keep: str | None, console: Console
) -> list[str]:
    """Stop jobs, say so, and return those that a learner has yet to end."""
    left_over = [job for status in statuses for job in client.every_job(status=status)]
    stopped = [client.stop(job.job_id) for job in left_over if job.job_id != keep]
    for job in stopped:
        console.print(
            f"stopped {job.job_id}, left unfinished earlier; "
            f"continue with: nitro train --resume {job.job_id}",
            style="yellow",
            soft_wrap=True,
        )
    return [job.job_id for job in stopped if job.status not in FINISHED]


def _watch(job_id: str, api: Api, interrupts: Interrupts, view: LiveView | LineView) -> Snapshot:
    snapshot: Snapshot | None = None
    told = stopped = begun = False
    again = "leave it" if api.system is None else "kill everything"
    for snapshot in follow(api.client, job_id, check=api.check, pause=interrupts.pause):
        view.show(snapshot)
        if not begun and snapshot.job.environment is not None:
            begun = True
            for line in snapshot.job.environment.preprocessing:
                view.note(f"  {line}")
            for line in advice_for(snapshot.job, snapshot.job.environment, api):
                view.note(line)
            api.wait_ready()
        if interrupts.asked and not told:
            told = True
            view.note(f"stopping after the update in hand; press Ctrl-C again to {again}")
        if interrupts.asked and not stopped:
            # Told again with the next look where nobody answers; that has its own patience.
            with contextlib.suppress(ApiUnreachableError):
                stop_job(api.client, job_id)
                stopped = True
    if snapshot is None:
        raise RuntimeError("following a job yields at least once")
    return snapshot


def advice_for(job: Job, environment: EnvironmentSpec, api: Api) -> list[str]:
    """Return what to tell of a job before it trains, one line each."""
    return advice(
        job.spec,
        environment,
        job.hyperparameters,
        rounds=job.spec.stop.max_rounds - job.progress.rounds,
        cpu_cores=None if api.system is None else gpu_less_cores(environment),
    )


def stop_job(client: NitroClient, job_id: str) -> None:
    """Tell a job to stop, unless it has ended meanwhile.

    Raises:
        ApiError: The API refused.
    """
    try:
        client.stop(job_id)
    except ApiError:
        if client.get(job_id).status not in FINISHED:
            raise
