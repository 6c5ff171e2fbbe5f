"""Running an experiment to its end, and going on where it was cut short."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from benchmarks.environment import describe_environment
from experiments.experiment import Experiment
from experiments.grid import Cell, CellId, Grid, LeftOut, Scale
from experiments.lab import Lab
from experiments.outcome import Outcome
from experiments.reporting.findings import Summary
from experiments.store import Store
from nitro.errors import CommandError
from shared.contracts.job_spec import JobSpec

_QUICK = "quick run: says nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What was asked for."""

    scale: Scale
    out: Path
    parallel: int | None = None
    only_made: bool = False
    """Whether only those cells count that are there, and none is made."""


def run_experiment(experiment: Experiment, run: Run, *, console: Console) -> Summary:
    """Make every cell that is not there yet, and sum all of them up.

    Raises:
        CommandError: A job failed, and cells made before stay; or none is made, and none is to be.
    """
    store = Store(run.out, experiment, quick=run.scale.quick)
    done: dict[CellId, Outcome] = {}
    if run.only_made:
        grid = _planned(experiment, run.scale, store, done)
        if not done:
            raise CommandError(f"--only-made: no run of {experiment.name} is in {store.folder}")
        summary = summarise(experiment, run.scale, grid, done)
        store.write_summary(summary)
        return summary
    with (
        _progress(console) as bar,
        Lab(experiment, parallel=run.parallel, progress=bar.watch) as lab,
    ):
        grid = _planned(experiment, run.scale, store, done)
        missing = [cell for cell in grid.cells if cell.id not in done]
        bar.tell(grid, missing)
        lab.add(missing)
        asked = {cell.id for cell in missing}
        for cell, outcome in lab.outcomes():
            store.write(cell, outcome)
            done[cell.id] = outcome
            bar.watch(cell, size(cell))
            grid = _planned(experiment, run.scale, store, done)
            following = [c for c in grid.cells if c.id not in done and c.id not in asked]
            asked.update(c.id for c in following)
            bar.expect(following)
            lab.add(following)
    summary = summarise(experiment, run.scale, grid, done)
    store.write_summary(summary)
    return summary


def _planned(
    experiment: Experiment, scale: Scale, store: Store, done: dict[CellId, Outcome]
) -> Grid:
    """Return the grid as far as it is known, with what is stored read into `done`."""
    while True:
        grid = experiment.plan(scale, done)
        found = {
            cell.id: stored
            for cell in grid.cells
            if cell.id not in done and (stored := store.read(cell)) is not None
        }
        if not found:
            return grid
        done |= found  # and others may follow from these


def summarise(
    experiment: Experiment, scale: Scale, grid: Grid, done: dict[CellId, Outcome]
) -> Summary:
    """Return what the outcomes say, with where and how they were made."""
    wanted = [cell.id for cell in grid.cells if cell.id in done]
    left_out = [LeftOut(what=what, why=why) for what, why in grid.left_out.items()]
    if missing := len(grid.cells) - len(wanted):
        left_out.append(LeftOut(what=f"{missing} of {len(grid.cells)} runs", why="not made yet"))
    found = experiment.find(scale, {key: done[key] for key in wanted})
    if scale.quick:
        claims = (c.model_copy(update={"verdict": _QUICK}) for c in found.claims)
        found = found.model_copy(update={"claims": tuple(claims)})
    options = f" --seeds {scale.seeds}" + (" --quick" if scale.quick else "")
    return Summary(
        **dict(found),
        name=experiment.name,
        title=experiment.title,
        paper=experiment.paper,
        command=f"{experiment.command}{options}",
        quick=scale.quick,
        seeds=len({cell.seed for cell in wanted}),
        cells=len(wanted),
        left_out=tuple(left_out),
        environment=describe_environment(),
        measured_on=_machines([done[key] for key in wanted]),
    )


def _machines(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    found = {
        ", ".join(
            (
                f"{o.environment.num_cpus} x {o.environment.cpu}",
                *((o.environment.gpu,) if o.environment.gpu else ()),
                f"commit {o.environment.commit}",
            )
        )
        for o in outcomes
    }
    return tuple(sorted(found))


def size(cell: Cell) -> int:
    """Return a cell's amount of work, in rounds."""
    return cell.task.stop.max_rounds if isinstance(cell.task, JobSpec) else 1


class _Bar:
    """Rounds done over rounds to do; told from several threads."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task
        self._lock = threading.Lock()
        self._rounds: dict[CellId, int] = {}
        self._total = 0

    def tell(self, grid: Grid, missing: Sequence[Cell]) -> None:
        """Say what is going to be done and what is not."""
        for what, why in grid.left_out.items():
            self._progress.console.print(f"left out {what}: {why}", markup=False)
        text = f"{len(grid.cells)} cells, {len(missing)} to be made"
        self._progress.console.print(text, markup=False, highlight=False)
        self.expect(missing)

    def expect(self, cells: Sequence[Cell]) -> None:
        """Add work."""
        self._total += sum(map(size, cells))
        self._progress.update(self._task, total=self._total)

    def watch(self, cell: Cell, rounds: int) -> None:
        """Note how far a cell is."""
        with self._lock:
            self._rounds[cell.id] = rounds
            self._progress.update(self._task, completed=sum(self._rounds.values()))


@contextmanager
def _progress(console: Console) -> Iterator[_Bar]:
    columns = (
        TextColumn("rounds"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, speed_estimate_period=600.0) as progress:
        bar = _Bar(progress, progress.add_task("rounds", total=None))
        yield bar
