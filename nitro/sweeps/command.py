"""`nitro sweep`: many jobs from one specification, with one budget, and what they came to."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import JsonValue
from typer.core import TyperGroup

from nitro.cli.console import command
from nitro.cli.options import RUNS, ApiUrl, AsJson, EnvironmentPackages, RunsDir
from nitro.errors import EXIT_FAILED, EXIT_INTERRUPTED, CommandError

if TYPE_CHECKING:
    from nitro.sweeps.folder import Asked, SweepFolder
    from nitro.sweeps.rows import Row

_job = partial(typer.Option, rich_help_panel="What to train", show_default=False)
_searching = partial(typer.Option, rich_help_panel="Search", show_default=False)
_where = partial(typer.Option, rich_help_panel="Where")


class _RunByDefault(TyperGroup):
    """A group with a command that is meant where none is named."""

    usual = "run"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [self.usual, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunByDefault,
    help="Train environments x settings x seeds under one budget: nitro sweep ENV... [OPTIONS].",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="`nitro sweep run --help` has all options.\n\nExamples:\n\n"
    "  $ nitro sweep CartPole-v1 Acrobot-v1 --seeds 3 --vary preset=standard,paper\n\n"
    "  $ nitro sweep resume cartpole-v1-and-1-3f2a81c0",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="As the sweep was called at its start.")]
Parallel = Annotated[
    str, _where(metavar="auto|N", help="Jobs at once; auto: what this machine's cores bear.")
]
Budget = Annotated[
    float | None,
    _job(help="Hard cap on the cost of all jobs together, as projected to AWS.", min=0.0001),
]


@command(
    app,
    "nitro sweep CartPole-v1 Acrobot-v1 --seeds 3 --vary preset=standard,paper",
    "nitro sweep Hopper-v5 --seeds 1-10 --vary hyperparameters.learning_rate=1e-4,3e-4",
    "nitro sweep --spec sweep.yaml --budget-usd 2 --dry-run",
    "nitro sweep CartPole-v1 --search hyperparameters.learning_rate=1e-4:1e-2:log --trials 8",
    name="run",
)
def run(
    environments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ENV...", help="Gymnasium environments.", show_default=False),
    ] = None,
    *,
    spec: Annotated[Path | None, _job(help="YAML or JSON file of a sweep; options win.")] = None,
    seeds: Annotated[
        str | None, _job(metavar="N|FROM-TO|N,N,...", help="N is 1 to N; default: 5.")
    ] = None,
    vary: Annotated[
        list[str] | None,
        _job(metavar="FIELD=a,b", help="Values of a field of the job; repeatable: a grid."),
    ] = None,
    total_steps: Annotated[
        str | None, _job(metavar="STEPS", help="Environment steps of each job, such as 1e6.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        _job("--set", metavar="PATH=VALUE", help="A field that all jobs have; repeatable."),
    ] = None,
    algorithm: Annotated[
        str | None, _job(metavar="ppo|impact|impala|sac", help="Of all jobs.")
    ] = None,
    preset: Annotated[str | None, _job(metavar="paper|standard", help="Of all jobs.")] = None,
    name: Annotated[str | None, _job(help="What to call the sweep.")] = None,
    search: Annotated[
        list[str] | None,
        _searching(
            metavar="FIELD=LOW:HIGH[:log][:int]",
            help="Look for the best value of a field; repeatable.",
        ),
    ] = None,
    trials: Annotated[int | None, _searching(help="Sets of values; default: 16.", min=1)] = None,
    sampler: Annotated[
        str | None, _searching(metavar="random|tpe", help="tpe is Optuna's; default: random.")
    ] = None,
    batch: Annotated[
        int | None,
        _searching(help="Trials drawn together; default: all, or a quarter with tpe.", min=1),
    ] = None,
    rungs: Annotated[
        str | None,
        _searching(metavar="STEPS,STEPS,...", help="Where all pause, and the best go on."),
    ] = None,
    keep: Annotated[float | None, _searching(help="Part that goes on; default: 0.5.")] = None,
    finalists: Annotated[
        int | None, _searching(help="Best trials to train with fresh seeds; default: 1.", min=0)
    ] = None,
    final_seeds: Annotated[
        int | None, _searching(help="Seeds of each finalist; default: 10.", min=1)
    ] = None,
    search_seed: Annotated[
        int | None, _searching(help="Seed of the values that are drawn; default: 0.", min=0)
    ] = None,
    budget_usd: Budget = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show jobs, minutes and dollars; train nothing.")
    ] = False,
    as_json: AsJson = False,
    parallel: Parallel = "auto",
    environment_packages: EnvironmentPackages = None,
    runs_dir: RunsDir = RUNS,
    api_url: ApiUrl = None,
) -> None:
    """Train every environment with every setting and every seed, and sum all up.

    The same command again goes on where it ended. Ctrl-C stops all jobs after the updates in hand.
    It ends with 0, with 1 if a job failed or had no money, with 130 if it was stopped.
    """
    from nitro.sweeps.folder import Asked
    from nitro.sweeps.search_spec import searched
    from nitro.sweeps.spec import sweep_spec
    from nitro.sweeps.sweeping import begin

    given: dict[str, JsonValue] = {
        "environments": list(environments) if environments else None,
        "seeds": seeds,
        "total_steps": total_steps,
        "vary": _varied(vary or []),
        "job": _job_fields(assignments or [], algorithm=algorithm, preset=preset),
        "name": name,
        "budget_usd": budget_usd,
        "search": searched(
            search or [],
            trials=trials,
            sampler=sampler,
            batch=batch,
            rungs=rungs,
            keep=keep,
            finalists=finalists,
            final_seeds=final_seeds,
            seed=search_seed,
        ),
    }
    asked = Asked(
        spec=sweep_spec(spec, {k: v for k, v in given.items() if v not in (None, {})}),
        environment_packages=tuple(environment_packages or ()),
    )
    if dry_run:
        return _price(asked, runs_dir, parallel=parallel, as_json=as_json, api_url=api_url)
    folder = begin(runs_dir, asked)
    raise typer.Exit(_run(folder, parallel=parallel, api_url=api_url, as_json=as_json))


@command(
    app,
    "nitro sweep show cartpole-v1-3f2a81c0",
    "nitro sweep show cartpole-v1-3f2a81c0 --format latex",
)
def show(
    name: Name,
    *,
    form: Annotated[
        Literal["text", "markdown", "latex", "csv"],
        typer.Option("--format", help="Of the table."),
    ] = "text",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .png, .pdf or .svg to draw.", show_default=False),
    ] = None,
    as_json: AsJson = False,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Show what a sweep found so far, also while it runs."""
    from nitro.sweeps.sweeping import summed_up
    from nitro.sweeps.tables import told

    folder = _found(name, runs_dir)
    found = summed_up(folder)
    if output is not None:
        from nitro.sweeps.picture import draw_sweep

        typer.echo(str(draw_sweep(folder.rows(), found, output)), err=True)
    typer.echo(found.model_dump_json() if as_json else told(found, form))


@command(app, "nitro sweep list", name="list")
def list_sweeps(*, runs_dir: RunsDir = RUNS) -> None:
    """List the sweeps of a folder of runs, and how many of their jobs are done."""
    from nitro.sweeps.folder import SweepFolder, sweep_names
    from nitro.sweeps.rows import DONE

    for name in sweep_names(runs_dir):
        folder = SweepFolder(runs_dir, name)
        rows = folder.rows()
        state = "running" if folder.is_held() else "not running"
        typer.echo(f"{name}  {sum(r.status in DONE for r in rows)} of {len(rows)} done, {state}")


@command(
    app,
    "nitro sweep resume cartpole-v1-3f2a81c0",
    "nitro sweep resume cartpole-v1-3f2a81c0 --budget-usd 4",
)
def resume(
    name: Name,
    *,
    budget_usd: Budget = None,
    parallel: Parallel = "auto",
    as_json: AsJson = False,
    runs_dir: RunsDir = RUNS,
    api_url: ApiUrl = None,
) -> None:
    """Go on with a sweep: stopped jobs resume, failed ones are tried again."""
    folder = _found(name, runs_dir)
    if budget_usd is not None:
        folder.raise_budget(budget_usd)
    raise typer.Exit(_run(folder, parallel=parallel, api_url=api_url, as_json=as_json))


@command(app, "nitro sweep stop cartpole-v1-3f2a81c0")
def stop(name: Name, *, runs_dir: RunsDir = RUNS, api_url: ApiUrl = None) -> None:
    """Stop a sweep after the updates in hand, from another terminal."""
    from nitro.sweeps.place import is_here

    folder = _found(name, runs_dir)
    if folder.is_held():
        folder.ask_to_stop()
        typer.echo(f"{folder.name} stops after the updates in hand")
    elif is_here(folder, api_url):
        typer.echo(f"{folder.name} does not run")
    else:
        from nitro.local.access import open_api
        from nitro.sweeps.sweeping import stop_jobs

        tell = partial(typer.echo, err=True)
        with open_api(runs_dir, spec=None, api_url=api_url, tell=tell) as api:
            typer.echo(f"{folder.name}: stopped {stop_jobs(folder, api)} jobs")


def _found(name: str, runs_dir: Path) -> "SweepFolder":
    """Return a sweep named in full or by how its name begins."""
    from nitro.sweeps.folder import SweepFolder, sweep_names

    matches = [known for known in sweep_names(runs_dir) if known.startswith(name)]
    folder = SweepFolder(runs_dir, matches[0] if len(matches) == 1 else name)
    folder.asked()
    return folder


def _varied(texts: Sequence[str]) -> dict[str, JsonValue]:
    from nitro.sweeps.spec import parse_vary

    found: dict[str, JsonValue] = {}
    for text in texts:
        field, values = parse_vary(text)
        if field in found:
            raise CommandError(f"--vary: {field} is given twice")
        found[field] = values
    return found


def _job_fields(
    assignments: Sequence[str], *, algorithm: str | None, preset: str | None
) -> dict[str, JsonValue]:
    from nitro.spec.spec_file import json_or_text

    fields: dict[str, JsonValue] = {}
    for text in assignments:
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            raise CommandError(f"--set: must look like path=value, got {text!r}")
        fields[path.strip()] = json_or_text(value)
    named: dict[str, JsonValue] = {"algorithm": algorithm, "preset": preset}
    return fields | {path: value for path, value in named.items() if value is not None}


def _price(
    asked: "Asked", runs_dir: Path, *, parallel: str, as_json: bool, api_url: str | None
) -> None:
    """Tell what a sweep would take and cost."""
    from nitro.local.own_environments import own_packages, require_registered
    from nitro.sweeps.folder import SweepFolder
    from nitro.sweeps.grid import expand
    from nitro.sweeps.place import is_here, parallel_jobs
    from nitro.sweeps.price import SweepPrice, measure_here, price_table, priced, priced_search
    from nitro.sweeps.sweeping import most_rows
    from nitro.tables import Output

    spec, name = asked.spec, asked.spec.known_name
    rows = [] if spec.search is not None else expand(spec, runs_dir=runs_dir)
    here = is_here(SweepFolder(runs_dir, name), api_url)
    at_once = parallel_jobs(parallel, rows=most_rows(spec, rows), here=here)
    own_packages(asked.environment_packages or None)
    for env_id in asked.spec.environments:
        require_registered(env_id)
    typer.echo("measuring each kind of job on this machine, for some seconds", err=True)
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
    told = [f"{at_once.jobs} at once ({at_once.reason}); minutes are of one after another"]
    told += [f"{g.env_id}, {g.setting}: no price, {g.reason}" for g in found.groups if g.reason]
    for line in told:
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _run(folder: "SweepFolder", *, parallel: str, api_url: str | None, as_json: bool) -> int:
    """Run a sweep, tell what came of it, and return the exit code."""
    from nitro.cli.interrupts import Interrupts
    from nitro.hints import Place, near
    from nitro.sweeps.sweeping import How, run_sweep, summed_up, write_results
    from nitro.sweeps.tables import told
    from nitro.sweeps.view import sweep_view
    from nitro.tables import Output

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
                    How(parallel=parallel, api_url=api_url),
                    view=view,
                    asked_to_stop=lambda: interrupts.asked,
                    pause=interrupts.pause,
                    ready=armed,
                )
        except (KeyboardInterrupt, SystemExit, CommandError, BrokenPipeError):
            typer.echo(f"cut short; go on with: {again}", err=True)
            raise
        interrupts.armed = False
    picture = write_results(folder)
    console.print()
    console.print(told(summed_up(folder), "text"), soft_wrap=True, markup=False, highlight=False)
    files = [*([picture] if picture else []), *(folder.path / f"table.{e}" for e in _TABLES)]
    for path in files:
        console.print(near(path.absolute()), soft_wrap=True, markup=False, highlight=False)
    code = exit_code(rows)
    if code:
        console.print(f"go on with: {again}", soft_wrap=True, markup=False, highlight=False)
    if as_json:
        typer.echo(summed_up(folder).model_dump_json())
    return code


_TABLES = ("md", "tex", "csv")


def exit_code(rows: "Sequence[Row]") -> int:
    """Return 0 if all rows are done, 1 if one failed or had no money, 130 if some were stopped."""
    statuses = {row.status for row in rows}
    if statuses & {"failed", "budget", "not started"}:
        return EXIT_FAILED
    return EXIT_INTERRUPTED if statuses & {"stopped", "waiting"} else 0
