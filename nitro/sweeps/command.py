"""`nitro sweep`: many jobs from one specification, with one budget, and their results."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from pydantic import JsonValue
from typer.core import TyperGroup

from nitro.cli.console import command
from nitro.cli.options import RUNS, ApiUrl, AsJson, Assignments, EnvironmentPackages, RunsDir
from nitro.sweeps import options

if TYPE_CHECKING:
    from nitro.sweeps.folder import SweepFolder


class _RunByDefault(TyperGroup):
    """A group with a default command."""

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


@command(
    app,
    "nitro sweep CartPole-v1 Acrobot-v1 --seeds 3 --vary preset=standard,paper",
    "nitro sweep Hopper-v5 --seeds 1-10 --vary hyperparameters.learning_rate=1e-4,3e-4",
    "nitro sweep --spec sweep.yaml --budget-usd 2 --dry-run",
    "nitro sweep CartPole-v1 --search hyperparameters.learning_rate=1e-4:1e-2:log --trials 8",
    name="run",
    takes_fields=True,
)
def run(
    environments: options.Environments = None,
    *,
    spec: options.Spec = None,
    seeds: options.Seeds = None,
    vary: options.Vary = None,
    total_steps: options.TotalSteps = None,
    assignments: Assignments = None,
    name: options.SweepName = None,
    search: options.Search = None,
    trials: options.Trials = None,
    sampler: options.Sampler = None,
    batch: options.Batch = None,
    rungs: options.Rungs = None,
    keep: options.Keep = None,
    finalists: options.Finalists = None,
    final_seeds: options.FinalSeeds = None,
    search_seed: options.SearchSeed = None,
    budget_usd: options.Budget = None,
    dry_run: options.DryRun = False,
    as_json: AsJson = False,
    parallel: options.Parallel = "auto",
    environment_packages: EnvironmentPackages = None,
    runs_dir: RunsDir = RUNS,
    api_url: ApiUrl = None,
) -> None:
    """Train every environment with every setting and every seed, and summarise.

    Repeating the command resumes the sweep. Ctrl-C stops all jobs after their current updates. The
    exit code is 0, 1 if a job failed or ran out of budget, or 130 if the sweep was stopped.
    """
    from nitro.spec.short_forms import written_out
    from nitro.spec.spec_file import parsed_assignments
    from nitro.sweeps.asking import searched, varied
    from nitro.sweeps.folder import Asked
    from nitro.sweeps.place import require_possible
    from nitro.sweeps.spec import sweep_spec
    from nitro.sweeps.sweeping import begin
    from nitro.sweeps.telling import run_and_tell, tell_price

    given: dict[str, JsonValue] = {
        "environments": list(environments) if environments else None,
        "seeds": seeds,
        "total_steps": total_steps,
        "vary": varied(vary or []),
        "job": written_out(parsed_assignments(assignments or []), runs_dir),
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
    require_possible(asked, runs_dir, api_url=api_url)
    if dry_run:
        return tell_price(asked, runs_dir, parallel=parallel, as_json=as_json, api_url=api_url)
    folder = begin(runs_dir, asked)
    raise typer.Exit(run_and_tell(folder, parallel=parallel, api_url=api_url, as_json=as_json))


@command(
    app,
    "nitro sweep show cartpole-v1-3f2a81c0",
    "nitro sweep show cartpole-v1-3f2a81c0 --format latex",
)
def show(
    name: options.Name,
    *,
    form: options.Form = "text",
    output: options.Picture = None,
    as_json: AsJson = False,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Show a sweep's results so far, also while it runs."""
    from nitro.sweeps.report.tables import told
    from nitro.sweeps.sweeping import summed_up

    folder = _found(name, runs_dir)
    found = summed_up(folder)
    if output is not None:
        from nitro.sweeps.report.picture import draw_sweep

        typer.echo(str(draw_sweep(folder.rows(), found, output)), err=True)
    typer.echo(found.model_dump_json() if as_json else told(found, form))


@command(app, "nitro sweep list", name="list")
def list_sweeps(*, runs_dir: RunsDir = RUNS) -> None:
    """List the sweeps of a folder of runs, with their finished jobs."""
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
    name: options.Name,
    *,
    budget_usd: options.Budget = None,
    parallel: options.Parallel = "auto",
    as_json: AsJson = False,
    runs_dir: RunsDir = RUNS,
    api_url: ApiUrl = None,
) -> None:
    """Resume a sweep: stopped jobs continue, failed ones are retried."""
    from nitro.sweeps.telling import run_and_tell

    folder = _found(name, runs_dir)
    if budget_usd is not None:
        folder.raise_budget(budget_usd)
    raise typer.Exit(run_and_tell(folder, parallel=parallel, api_url=api_url, as_json=as_json))


@command(app, "nitro sweep stop cartpole-v1-3f2a81c0")
def stop(name: options.Name, *, runs_dir: RunsDir = RUNS, api_url: ApiUrl = None) -> None:
    """Stop a sweep after its jobs' current updates, from another terminal."""
    from nitro.sweeps.place import is_here

    folder = _found(name, runs_dir)
    if folder.is_held():
        folder.ask_to_stop()
        typer.echo(f"{folder.name} stops after the current updates")
    elif is_here(folder, api_url):
        typer.echo(f"{folder.name} is not running")
    else:
        from nitro.local.access import open_api
        from nitro.sweeps.sweeping import stop_jobs

        tell = partial(typer.echo, err=True)
        with open_api(runs_dir, api_url=api_url, tell=tell) as api:
            typer.echo(f"{folder.name}: stopped {stop_jobs(folder, api)} jobs")


def _found(name: str, runs_dir: Path) -> "SweepFolder":
    """Return a sweep by its name or a prefix of it."""
    from nitro.sweeps.folder import SweepFolder, sweep_names

    matches = [known for known in sweep_names(runs_dir) if known.startswith(name)]
    folder = SweepFolder(runs_dir, matches[0] if len(matches) == 1 else name)
    folder.asked()
    return folder
