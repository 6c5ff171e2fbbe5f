"""Running an experiment to its end, and going on where it was cut short."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.environment import describe_environment
from experiments.experiment import Experiment
from experiments.grid import CellId, Grid, LeftOut, Scale
from experiments.outcome import Outcome
from experiments.reporting.findings import Summary
from experiments.store import Store
from experiments.training import Training
from nitro.errors import CommandError

_QUICK = "quick run: says nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The request."""

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
    done: dict[CellId, Any] = {}
    planned = partial(_planned, experiment, run.scale, store, done)
    grid = planned()
    if run.only_made and not done:
        raise CommandError(f"--only-made: no run of {experiment.name} is in {store.folder}")
    if not run.only_made:
        for what, why in grid.left_out.items():
            console.print(f"left out {what}: {why}", markup=False)
        missing = sum(cell.id not in done for cell in grid.cells)
        console.print(f"{len(grid.cells)} cells, {missing} to be made", highlight=False)
        _make(experiment, run, store, planned, done, console=console)
        grid = planned()
    summary = summarise(experiment, run.scale, grid, done)
    store.write_summary(summary)
    return summary


def _make(
    experiment: Experiment,
    run: Run,
    store: Store,
    planned: Callable[[], Grid],
    done: dict[CellId, Any],
    *,
    console: Console,
) -> None:
    """Make the cells that are missing: jobs as a sweep, others one after another."""
    work = experiment.work
    if work is None:
        Training(
            experiment, store, planned=planned, done=done, parallel=run.parallel, console=console
        ).run()
        return
    while missing := [cell for cell in planned().cells if cell.id not in done]:
        # Lower seeds first, so that a run cut short leaves whole seeds behind.
        cell = min(missing, key=lambda each: each.id.seed)
        console.print(f"{', '.join(map(str, cell.id))}; {len(missing)} to be made", markup=False)
        done[cell.id] = work(cell)
        store.write(cell, done[cell.id])


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
