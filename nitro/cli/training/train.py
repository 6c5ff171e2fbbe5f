"""`nitro train`: submit or resume a job, follow it, and show its outcome."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import typer
from pydantic import JsonValue

from nitro.cli.interrupts import Interrupts
from nitro.cli.progress import LineView, LiveView, progress_view
from nitro.cli.training.conclusion import conclude
from nitro.cli.training.detached import leave
from nitro.client.beginning import NewJob, Resumption
from nitro.client.errors import ApiError, ApiUnreachableError
from nitro.client.follow import Snapshot, follow, stop_unfinished
from nitro.client.naming import find_job
from nitro.dashboard.page_link import shown_link
from nitro.errors import CommandError
from nitro.local.access import Api
from nitro.local.left_over import UNFINISHED, end_left_over, stop_left_over
from nitro.local.own_environments import keep_packages, require_admitted_here
from nitro.runs.reading import find_run, read_job
from nitro.runs.summary import more_of
from nitro.spec.advice import advice, gpu_less_cores
from nitro.spec.earlier_policy import earlier_policy
from nitro.spec.short_forms import written_out
from nitro.spec.spec_file import parsed_assignments
from nitro.spec.total_steps import parse_steps
from nitro.spec.train_spec import train_spec
from nitro.tables import Output
from nitro.tracking.tracking import told_to
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.jobs import Job, JobStatus
from shared.environments.variables import variable_differences

_LIMITS = ("max_rounds", "budget_usd", "max_wall_s")
"""Fields of `stop` that a resume may raise."""
_STARTED: tuple[JobStatus, ...] = ("checking", "queued", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRequest:
    """The job to train and how to report it."""

    job: NewJob | Resumption
    runs_dir: Path
    as_json: bool
    track: str | None = None
    """The experiment tracker that logs the job."""
    detach: bool = False
    """Whether to return once the job is admitted."""


def asked_job(
    fields: Mapping[str, JsonValue],
    *,
    total_steps: str | None,
    assignments: Sequence[str],
    spec_file: Path | None,
    init_from: str | None,
    idempotency_key: str | None,
    resume: str | None,
    from_scratch: bool,
    fresh_schedule: bool,
    runs_dir: Path,
    here: bool,
) -> NewJob | Resumption:
    """Return the job of these options, or the resumed job with its new limits.

    Args:
        fields: Values by dotted path, or short forms; None means not given.
        total_steps: Environment steps, in place of `stop.max_rounds`.
        assignments: `path=value` texts, which win over fields.
        spec_file: A file of fields.
        init_from: An earlier run whose policy the job starts from.
        idempotency_key: Of a new job.
        resume: An earlier job to resume instead.
        from_scratch: Whether lost rounds of a resumed job are repeated.
        fresh_schedule: Whether its step size decays again.
        runs_dir: Folder of the local runs.
        here: Whether it runs on this machine.

    Raises:
        CommandError: A field is wrong, or a resumed job cannot change it.
    """
    said = {path: value for path, value in fields.items() if value not in (None, [])}
    given = written_out({**said, **parsed_assignments(assignments)}, runs_dir)
    if init_from is not None:
        given.update(earlier_policy(init_from, runs_dir, env_id=given.get("env_id")))
    steps = None if total_steps is None else parse_steps(total_steps)
    if resume is None:
        if from_scratch or fresh_schedule:
            option = "--from-scratch" if from_scratch else "--fresh-schedule"
            raise CommandError(f"{option}: is for --resume; a new job does so anyway")
        spec = train_spec(file=spec_file, options=given, total_steps=steps, here=here)
        return NewJob(spec=spec, idempotency_key=idempotency_key)
    limits: dict[str, Any] = {name: given.pop(f"stop.{name}", None) for name in _LIMITS}
    others = {"--spec": spec_file, "--idempotency-key": idempotency_key}
    named = [*given, *(option for option, value in others.items() if value)]
    if named:
        raise CommandError(
            f"--resume: {', '.join(named)} cannot change in a job that continues; only --rounds, "
            "--total-steps, --budget-usd, --max-wall-s and --fresh-schedule can be added, and "
            "--init-from starts a new job from the policy"
        )
    return Resumption(
        job_id=resume,
        **limits,
        max_env_steps=steps,
        from_scratch=from_scratch,
        fresh_schedule=fresh_schedule,
    )


def most_actors(job: NewJob | Resumption, runs_dir: Path) -> int:
    """Return the most actors of a round; 0 if the job is unknown here."""
    if isinstance(job, NewJob):
        return job.spec.actors.max
    try:
        return read_job(find_run(job.job_id, runs_dir)).spec.actors.max
    except CommandError:
        return 0


def train(request: TrainRequest, api: Api, *, interrupts: Interrupts, stdout: TextIO) -> int:
    """Train to the end and return the exit code."""
    console = Output(file=None if request.as_json else stdout, stderr=request.as_json)
    wanted = request.job
    keyed = isinstance(wanted, NewJob) and wanted.idempotency_key is not None
    resumed: str | None = None
    if isinstance(wanted, Resumption):
        resumed = find_job(api.client, wanted.job_id)
        wanted = replace(wanted, job_id=resumed)

    def tell(text: str) -> None:
        console.print(text, style="yellow", soft_wrap=True)

    if api.system is not None:
        # An idempotency key may name a waiting or running job, which is known only after
        # submitting.
        statuses = ("stopping",) if keyed else UNFINISHED
        end_left_over(api, statuses, keep=resumed, tell=tell, pause=interrupts.pause)
    job = _begin(wanted, api, interrupts)
    keep_packages(request.runs_dir / job.job_id, api.environment_packages)
    if request.detach:
        return leave([job], api, as_json=request.as_json, console=console, stdout=stdout)
    interrupts.armed = True
    if api.system is not None and keyed:
        stop_left_over(api, _STARTED, keep=job.job_id, tell=tell)
    try:
        with progress_view(console) as view:
            view.note(f"job {job.job_id}")
            if api.system is not None:
                url, token, private = api.system.api_url, api.system.token, console.is_terminal
                link = shown_link(url, token, private=private, place=api.place, job_id=job.job_id)
                view.note(f"page {link}")
            with told_to(
                request.track, job, runs_dir=request.runs_dir, note=view.note
            ) as tell_tracker:
                snapshot = _watch(job.job_id, api, interrupts, view, tell_tracker)
    except (KeyboardInterrupt, SystemExit, CommandError, BrokenPipeError):
        # Bypass the console: a signal in the middle of a line makes it hold back all further
        # output.
        typer.echo(_left(job.job_id, api), err=True)
        raise
    require_admitted_here(snapshot.job)
    interrupts.armed = False  # nothing is left to stop
    return conclude(snapshot, api, as_json=request.as_json, console=console, stdout=stdout)


def _left(job_id: str, api: Api) -> str:
    """Say what becomes of a job that nobody follows any more."""
    if api.system is not None:
        return f"cut short; continue with: {api.place.command('train', '--resume', job_id)}"
    show, stop = (api.place.command("jobs", verb, job_id) for verb in ("show", "stop"))
    return (
        "the job runs on without this command, and costs money, unless it was stopped; show it "
        f"with: {show}\nend it with: {stop}"
    )


def _begin(wanted: NewJob | Resumption, api: Api, interrupts: Interrupts) -> Job:
    if isinstance(wanted, NewJob):
        return wanted.begin(api.client)
    if api.client.get(wanted.job_id).status == "stopping":
        # Its learner was killed before the job stopped; our learner ends it properly first.
        for _ in follow(api.client, wanted.job_id, check=api.check, pause=interrupts.pause):
            pass
    try:
        return wanted.begin(api.client)
    except ApiError as error:
        options = {"max_rounds": "--rounds", "max_env_steps": "--total-steps"}
        wrong = [options[each.field] for each in error.problem.errors if each.field in options]
        if not wrong:
            raise
        longer = more_of(api.client.get(wanted.job_id))
        command = api.place.command("train", "--resume", wanted.job_id, *longer)
        raise CommandError(f"{wrong[0]}: {error}\nfor example: {command}") from error


def _watch(
    job_id: str,
    api: Api,
    interrupts: Interrupts,
    view: LiveView | LineView,
    tell_tracker: Callable[[Snapshot], object],
) -> Snapshot:
    snapshot: Snapshot | None = None
    told = stopped = begun = False
    again = "leave it" if api.system is None else "kill everything"
    for snapshot in follow(api.client, job_id, check=api.check, pause=interrupts.pause):
        view.show(snapshot)
        tell_tracker(snapshot)
        if not begun and snapshot.job.environment is not None:
            begun = True
            for line in snapshot.job.environment.preprocessing:
                view.note(f"  {line}")
            for line in advice_for(snapshot.job, snapshot.job.environment, api):
                view.note(line)
            api.wait_ready()
        if interrupts.asked and not told:
            told = True
            view.note(f"stopping after the current update; press Ctrl-C again to {again}")
        if interrupts.asked and not stopped:
            # Told again with the next look where nobody answers; that has its own patience.
            with contextlib.suppress(ApiUnreachableError):
                stop_unfinished(api.client, job_id)
                stopped = True
    if snapshot is None:
        raise RuntimeError("following a job yields at least once")
    return snapshot


def advice_for(job: Job, environment: EnvironmentSpec, api: Api) -> list[str]:
    """Return advice about a job before it trains, one line each."""
    lines = advice(
        job.spec,
        environment,
        job.hyperparameters,
        rounds=job.spec.stop.max_rounds - job.progress.rounds,
        cpu_cores=None if api.system is None else gpu_less_cores(environment),
        place=api.place,
    )
    differences = variable_differences(environment.variables, job.spec.env_variables)
    return [*lines, *(f"{line}; --env sets it for a job" for line in differences)]
