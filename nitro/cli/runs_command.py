"""`nitro runs`: list, show and compare runs from their folders."""

import json
from typing import Annotated

import typer

from nitro.cli.console import command, show
from nitro.cli.options import RUNS, AsJson, AsJsonList, Run, Runs, RunsDir
from nitro.errors import CommandError
from nitro.hints import Place

app = typer.Typer(
    help="List, show and compare runs. Reads only their folders: no system has to run.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@command(
    app,
    "nitro runs list",
    "nitro runs list --env hopper --limit 10",
    "nitro runs list --tag sweep-1 --filter baseline",
    "nitro runs list --state failed --json",
    name="list",
)
def list_runs(
    *,
    env: Annotated[
        str | None, typer.Option(help="Only environments with this in their name.")
    ] = None,
    state: Annotated[
        str | None, typer.Option(metavar="finished|stopped|failed|unfinished", help="Only these.")
    ] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="Only runs with this tag; repeatable.")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            "--filter",
            metavar="TEXT",
            help="Only runs with this in their name, id, folder, environment or a tag.",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Number of runs, newest first.", min=1)] = None,
    as_json: AsJsonList = False,
    runs_dir: RunsDir = RUNS,
) -> None:
    """List the runs of a folder and its sub-folders, newest first."""
    from rich.console import Console

    from nitro.runs import listing

    wanted = listing.check_state(state)
    found = listing.list_runs(runs_dir, env=env, state=wanted, tags=tags or (), text=text)
    rows = found[:limit]
    if as_json:
        typer.echo(json.dumps([row.model_dump(mode="json") for row in rows]))
    elif rows:
        show(listing.runs_table(rows, runs_dir=runs_dir, width=Console().width))
    else:
        typer.echo(f"no runs in {runs_dir}")


@command(app, "nitro runs show hopper-v5-3f2a", "nitro runs show hopper-v5-3 --json", name="show")
def show_run(run: Run, *, as_json: AsJson = False, runs_dir: RunsDir = RUNS) -> None:
    """Show one run: specification, returns, time, cost and files."""
    from nitro.runs.reading import find_run
    from nitro.runs.report import report_table, run_report

    report = run_report(find_run(run, runs_dir))
    if as_json:
        typer.echo(report.model_dump_json())
    else:
        show(report_table(report))


@command(
    app,
    "nitro runs compare hopper-v5-3f2a hopper-v5-81c0",
    "nitro runs compare hopper-v5-3f2a hopper-v5-81c0 hopper-v5-9d1e --json",
)
def compare(runs: Runs, *, as_json: AsJson = False, runs_dir: RunsDir = RUNS) -> None:
    """Compare runs: differing fields, and returns, also at equal steps and at equal dollars."""
    from nitro.runs.comparison import compare_runs, comparison_table
    from nitro.runs.reading import distinct_runs, find_run

    if len(runs) < 2:
        one = Place(runs_dir=runs_dir).command("runs", "show", *runs)
        raise CommandError(f"RUN: name two runs or more; for a single run: {one}")
    comparison = compare_runs(distinct_runs(runs, lambda run: find_run(run, runs_dir)))
    if as_json:
        typer.echo(comparison.model_dump_json())
    else:
        show(comparison_table(comparison))
