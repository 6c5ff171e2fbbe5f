"""The work of `nitro experiment`, once its options are read."""

import os
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.catalogue import load
from experiments.going_on import with_horizon
from experiments.grid import Scale
from experiments.reporting.figure import draw
from experiments.reporting.findings import Summary
from experiments.runner import Run, run_experiment
from experiments.store import Store
from nitro.cli.interrupts import Interrupts
from nitro.errors import CommandError
from nitro.hints import Place
from nitro.tables import print_text
from shared.hyperparameters.horizons import Horizon

_QUICK_SEEDS = 1
_PLAIN_WIDTH = 140
"""Columns of a table that is not shown on a terminal."""


def run_and_draw(
    name: str,
    *,
    seeds: int | None,
    quick: bool,
    out: Path,
    parallel: int | None,
    only_made: bool = False,
    horizon: str | None = None,
) -> None:
    """Run an experiment to its end, write summary and figure, and show what it found.

    Raises:
        CommandError: There is no such experiment, an option means nothing to it, its results
            cannot be written, or a job failed.
    """
    console = Console(stderr=True)
    experiment = load(name)
    if horizon is not None:
        experiment = with_horizon(experiment, _read_horizon(horizon))
    if parallel is not None and (experiment.alone or experiment.work is not None):
        raise CommandError(f"--parallel: {name} is made one after another; leave it out")
    _require_folder(out)
    scale = Scale(seeds=seeds or (_QUICK_SEEDS if quick else experiment.seeds), quick=quick)
    with Interrupts():
        summary = run_experiment(
            experiment,
            Run(scale=scale, out=out, parallel=parallel, only_made=only_made),
            console=console,
        )
    show_summary(summary)
    store = Store(out, experiment, quick=quick)
    for path in (store.summary_path, draw(summary, store.summary_path)):
        print_text(console, str(path))


def _read_horizon(text: str) -> Horizon:
    if text == "limit":
        return "limit"
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise CommandError(f"--horizon: must be limit or a number of steps, got {text!r}")
    return int(text)


def _require_folder(folder: Path) -> None:
    """Make the folder of the results now: hours later is too late to learn that it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"--out: {folder} cannot be made: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CommandError(f"--out: {folder} cannot be written to")


def draw_again(name: str, *, quick: bool, out: Path, horizon: str | None = None) -> Path:
    """Draw the figure from the summary.

    Raises:
        CommandError: There is no such experiment, the horizon means nothing to it, or it has no
            results.
    """
    experiment = load(name)
    if horizon is not None:
        experiment = with_horizon(experiment, _read_horizon(horizon))
    store = Store(out, experiment, quick=quick)
    summary = store.summary()
    if summary is None:
        options = [*(["--quick"] if quick else []), *(["--horizon", horizon] if horizon else [])]
        made_by = Place().command("experiment", "run", name, *options, "--out", out)
        raise CommandError(
            f"NAME: {name} has no results in {store.folder}; make them by: {made_by}"
        )
    return draw(summary, store.summary_path)


def show_summary(summary: Summary) -> None:
    """Print tables and claims."""
    console = Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
    if summary.quick:
        console.print("[bold red]quick run: these numbers mean nothing[/]")
    for entry in summary.tables:
        table = Table(*entry.columns, title=entry.title, title_justify="left")
        for row in entry.rows:
            table.add_row(*("–" if v is None else Text(_text(v)) for v in row))
        console.print(table)
    for claim in summary.claims:
        console.print(Text(f"{claim.paper}\n  {claim.ours}\n  {claim.verdict}"))


def _text(value: str | float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
