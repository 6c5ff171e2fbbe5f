"""The actions and messages of `nitro sweep`."""

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from nitro.cli.interrupts import Interrupts
from nitro.errors import EXIT_FAILED, EXIT_INTERRUPTED, CommandError
from nitro.hints import Place, near
from nitro.local.own_environments import own_packages, require_registered
from nitro.sweeps.folder import Asked, SweepFolder
from nitro.sweeps.grid import expand
from nitro.sweeps.place import is_here, parallel_jobs
from nitro.sweeps.price import SweepPrice, measure_here, price_table, priced, priced_search
from nitro.sweeps.report.tables import told
from nitro.sweeps.rows import Row
from nitro.sweeps.sweeping import most_rows, run_sweep, summed_up, write_results
from nitro.sweeps.view import sweep_view
from nitro.tables import Output, print_text

_TABLES = ("md", "tex", "csv")


def tell_price(
    asked: Asked, runs_dir: Path, *, parallel: str, as_json: bool, api_url: str | None
) -> None:
    """Show a sweep's estimated time and cost."""
    spec, name = asked.spec, asked.spec.known_name
    rows = [] if spec.search is not None else expand(spec, runs_dir=runs_dir)
    here = is_here(SweepFolder(runs_dir, name), api_url)
    at_once = parallel_jobs(parallel, rows=most_rows(spec, rows), here=here)
    own_packages(asked.environment_packages or None)
    for env_id in asked.spec.environments:
        require_registered(env_id)
    typer.echo("measuring each kind of job on this machine, for a few seconds", err=True)
    if spec.search is None:
        groups = priced(rows, measure_here)
    else:
        groups = priced_search(spec, spec.search, measure_here, runs_dir=runs_dir)
    found = SweepPrice(
        name=name,
        groups=groups,
        parallel=at_once.jobs,
        parallel_reason=at_once.reason,
        budget_usd=asked.spec.budget_usd,
    )
    if as_json:
        typer.echo(found.model_dump_json())
        return
    console = Output()
    console.print(price_table(found, width=console.width))
    lines = [f"{at_once.jobs} at once ({at_once.reason}); minutes assume one job at a time"]
    lines += [f"{g.env_id}, {g.setting}: no price, {g.reason}" for g in found.groups if g.reason]
    for line in lines:
        print_text(console, line)


def run_and_tell(folder: SweepFolder, *, parallel: str, api_url: str | None, as_json: bool) -> int:
    """Run a sweep, show its results, and return the exit code."""
    console = Output(file=None if as_json else sys.stdout, stderr=as_json)
    place = Place(runs_dir=folder.runs_dir, api_url=api_url)
    again = place.command("sweep", "resume", folder.name)
    budget_usd = folder.asked().spec.budget_usd
    with Interrupts() as interrupts:
        try:
            with sweep_view(console, budget_usd=budget_usd) as view:
                view.note(f"sweep {folder.name}, in {near(folder.path.absolute())}")

                def armed() -> None:
                    interrupts.armed = True

                rows = run_sweep(
                    folder,
                    parallel=parallel,
                    api_url=api_url,
                    view=view,
                    asked_to_stop=lambda: interrupts.asked,
                    pause=interrupts.pause,
                    ready=armed,
                )
        except (KeyboardInterrupt, SystemExit, CommandError, BrokenPipeError):
            typer.echo(f"interrupted; continue with: {again}", err=True)
            raise
        interrupts.armed = False
    picture, found = write_results(folder), summed_up(folder)
    console.print()
    print_text(console, told(found, "text"))
    files = [*([picture] if picture else []), *(folder.path / f"table.{e}" for e in _TABLES)]
    for path in files:
        print_text(console, near(path.absolute()))
    code = exit_code(rows)
    if code:
        print_text(console, f"continue with: {again}")
    if as_json:
        typer.echo(found.model_dump_json())
    return code


def exit_code(rows: Sequence[Row]) -> int:
    """Return 0 if all rows are done, 1 if one failed or lacked budget, 130 if some were stopped."""
    statuses = {row.status for row in rows}
    if statuses & {"failed", "budget", "not started"}:
        return EXIT_FAILED
    return EXIT_INTERRUPTED if statuses & {"stopped", "waiting"} else 0
