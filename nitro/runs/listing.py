"""`nitro runs list`: one line per run, newest first."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import typer
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from rich.table import Table

from nitro.errors import CommandError
from nitro.runs.reading import read_run, readable_jobs
from nitro.runs.summary import number, progress_text
from nitro.tables import columns_table
from shared.contracts.jobs import Job, JobStatus

RunState = Literal["finished", "stopped", "failed", "unfinished"]
"""`unfinished`: it is running, waits, or was interrupted by the end of its system."""
_ENDED: dict[JobStatus, RunState] = {
    "succeeded": "finished",
    "stopped": "stopped",
    "failed": "failed",
}
_NUMBERS = frozenset({"round", "final", "best", "USD", "age", "steps", "seed"})
_SPANS = ((86_400, "d"), (3600, "h"), (60, "min"))


class RunRow(BaseModel):
    """One run; the fields are keys of `--json`."""

    model_config = ConfigDict(frozen=True)

    name: str
    """Name of its folder, which is the job's id."""
    label: str | None
    """The job's `--name`."""
    tags: tuple[str, ...]
    folder: str
    state: RunState
    env_id: str
    algorithm: str
    preset: str
    seed: int
    rounds: int
    """Rounds that are done."""
    max_rounds: int
    env_steps: int
    ending_steps: int | None
    """Environment steps that end it before its rounds do; None if its rounds end it."""
    final_return: float | None
    """Mean of the latest evaluation; None without any."""
    best_return: float | None
    cost_usd: float
    """Projected cost on AWS."""
    created_at: float
    """Unix seconds, like every `_at` field."""
    finished_at: float | None


def state_of(job: Job) -> RunState:
    """Return a run's state by its folder."""
    return _ENDED.get(job.status, "unfinished")


def check_state(state: str | None) -> RunState | None:
    """Return a validated state.

    Raises:
        CommandError: There is no such state.
    """
    try:
        return TypeAdapter(RunState | None).validate_python(state)
    except ValidationError:
        known = ", ".join(get_args(RunState))
        raise CommandError(f"--state: must be one of {known}, got {state!r}") from None


def list_runs(
    runs_dir: Path,
    *,
    env: str | None = None,
    state: RunState | None = None,
    tags: Sequence[str] = (),
    text: str | None = None,
) -> list[RunRow]:
    """Return the runs of a folder, newest first; damaged runs are only reported on stderr.

    Args:
        runs_dir: Folder of the runs.
        env: Only runs whose environment's name contains this, ignoring case.
        state: Only runs with this state.
        tags: Only runs with all of these tags.
        text: Only runs with this text in their name, id, folder, environment or a tag.
    """
    rows = []
    for folder, job in readable_jobs(runs_dir):
        named = env is None or env.lower() in job.spec.env_id.lower()
        if not named or state not in (None, state_of(job)) or not {*tags} <= {*job.spec.tags}:
            continue
        searched = (job.spec.name or "", str(folder.relative_to(runs_dir)), job.spec.env_id)
        wanted = (text or "").casefold()
        if not any(wanted in each.casefold() for each in (*searched, *job.spec.tags)):
            continue
        try:
            rows.append(run_row(folder, job))
        except CommandError as error:
            typer.echo(f"skipped {error}", err=True)
    return rows


def run_row(folder: Path, job: Job) -> RunRow:
    """Return a run's line.

    The job file of an ended run has all results. The job file of any other run is from its start.

    Raises:
        CommandError: The rounds or the bill of an unfinished run are damaged.
    """
    progress, cost_usd = job.progress, job.spent_usd
    if state_of(job) == "unfinished":
        run = read_run(folder)
        progress, cost_usd = run.progress, run.cost_usd
    return RunRow(
        name=folder.absolute().name,
        label=job.spec.name,
        tags=job.spec.tags,
        folder=str(folder),
        state=state_of(job),
        env_id=job.spec.env_id,
        algorithm=job.spec.algorithm,
        preset=job.spec.preset,
        seed=job.spec.seed,
        rounds=progress.rounds,
        max_rounds=job.spec.stop.max_rounds,
        env_steps=progress.env_steps,
        ending_steps=job.spec.stop.ending_steps,
        final_return=progress.last_return,
        best_return=progress.best_return,
        cost_usd=cost_usd,
        created_at=job.created_at,
        finished_at=job.finished_at,
    )


def _said(heading: str, cells: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return a column of a table, unless all of its cells are empty."""
    return {heading: cells} if any(cells) else {}


def runs_table(rows: Sequence[RunRow], *, runs_dir: Path, width: int) -> Table:
    """Format runs for people; columns that do not fit are left out from the last."""
    now = time.time()
    columns: dict[str, Sequence[str]] = {
        "run": [str(Path(row.folder).relative_to(runs_dir)) for row in rows],
        "state": [row.state for row in rows],
        "round": [
            progress_text(row.rounds, row.max_rounds, row.env_steps, row.ending_steps)
            for row in rows
        ],
        "final": [number(row.final_return) for row in rows],
        "best": [number(row.best_return) for row in rows],
        "USD": [f"{row.cost_usd:.4f}" for row in rows],
        "age": [age(now - row.created_at) for row in rows],
        "steps": [f"{row.env_steps:,}" for row in rows],
        **_said("name", [row.label or "" for row in rows]),
        **_said("tags", [" ".join(row.tags) for row in rows]),
        "seed": [str(row.seed) for row in rows],
        "algorithm": [f"{row.algorithm} ({row.preset})" for row in rows],
        "environment": [row.env_id for row in rows],
    }
    return columns_table(columns, numbers=_NUMBERS, uncut=5, width=width)


def age(seconds: float) -> str:
    """Format an age: `now`, `3 min`, `2 h`, `5 d`."""
    for span, unit in _SPANS:
        if seconds >= span:
            return f"{int(seconds // span)} {unit}"
    return "now"
