"""`nitro`: train, inspect, evaluate and plot from the command line.

Commands import their libraries lazily, so that `--help` is fast.
"""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nitro.afar.command import add_commands
from nitro.cli import jobs_command as jobs
from nitro.cli.check_env_command import EXAMPLES as CHECK_ENV_EXAMPLES
from nitro.cli.check_env_command import check_env
from nitro.cli.console import command, show
from nitro.cli.experiment_command import app as experiment
from nitro.cli.options import (
    RUNS,
    AsJson,
    AsJsonList,
    Checkpoint,
    EnvironmentPackages,
    Run,
    Runs,
    RunsDir,
)
from nitro.cli.runs_command import app as runs_app
from nitro.cli.scheduler_command import app as scheduler
from nitro.cli.training.train_command import EXAMPLES, train
from nitro.dashboard.command import EXAMPLES as DASHBOARD_EXAMPLES
from nitro.dashboard.command import dashboard
from nitro.deploy.doctor import EXAMPLES as DOCTOR_EXAMPLES
from nitro.deploy.doctor import doctor
from nitro.foreign_output import foreign_code, own_stdout
from nitro.hints import Place
from nitro.planning.command import EXAMPLES as PLAN_EXAMPLES
from nitro.planning.command import plan
from nitro.sweeps.command import app as sweep
from nitro.tracking.command import EXAMPLES as TRACK_EXAMPLES
from nitro.tracking.command import track

if TYPE_CHECKING:
    from nitro.local.system import LocalSystem

_CHECK_S = 0.5
"""Between two checks of the local system."""

app = typer.Typer(
    help="Train deep-RL agents with as many serverless actors as each round is worth.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(runs_app, name="runs")
app.add_typer(jobs.app, name="jobs")
add_commands(app, jobs.app)
app.add_typer(sweep, name="sweep")
app.add_typer(scheduler, name="scheduler")
app.add_typer(experiment, name="experiment")


def main() -> None:
    """Run the command line."""
    with own_stdout():
        app()


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback signature
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"nitro {version('nitro-rl')}")
        except PackageNotFoundError:
            typer.echo("nitro (from a source tree that is not installed)")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    del version  # its callback did the work


command(app, *EXAMPLES, takes_fields=True)(train)
command(app, *PLAN_EXAMPLES, takes_fields=True)(plan)
command(app, *CHECK_ENV_EXAMPLES)(check_env)
command(app, *DOCTOR_EXAMPLES)(doctor)
command(app, *TRACK_EXAMPLES)(track)
command(app, *DASHBOARD_EXAMPLES)(dashboard)


@command(app, "nitro policies", "nitro train --scaling hydrozoa:5")
def policies() -> None:
    """List the scaling policies and their parameters."""
    from nitro.spec.scaling_option import policies_table

    show(policies_table())


@command(app, "nitro fields", "nitro fields detector", "nitro train --detector.num-samples 512")
def fields(
    group: Annotated[
        str | None,
        typer.Argument(help="Such as stop or detector; default: all.", show_default=False),
    ] = None,
    *,
    as_json: AsJsonList = False,
) -> None:
    """List every field of a job: options, and keys in a --spec file and in REST.

    The defaults are those of the API. `nitro train --dry-run` shows the defaults of a new job.
    """
    import json

    from nitro.spec.fields import field_rows, field_table

    rows = field_rows(group)
    if as_json:
        typer.echo(json.dumps([row.model_dump(mode="json") for row in rows]))
    else:
        show(field_table(rows))


@command(
    app,
    "nitro presets ppo",
    "nitro presets CartPole-v1",
    "nitro presets Hopper-v5 --algorithm ars",
    "nitro presets impact --preset standard --json",
)
def presets(
    name: Annotated[
        str | None,
        typer.Argument(
            help="An algorithm, or an environment; default: all presets.",
            show_default=False,
        ),
    ] = None,
    *,
    preset: Annotated[
        str | None, typer.Option(help="paper or standard; default: both.", show_default=False)
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(help="In an environment; default: all that can learn it.", show_default=False),
    ] = None,
    as_json: AsJsonList = False,
) -> None:
    """Show every hyper-parameter of the presets: value, source and meaning.

    With an environment it shows the defaults of `nitro train` there.
    """
    import json

    from nitro.spec.presets import preset_reports, preset_table

    reports = preset_reports(name, preset, algorithm=algorithm)
    if as_json:
        typer.echo(json.dumps([report.model_dump(mode="json") for report in reports]))
        return
    for report in reports:
        show(preset_table(report))


@command(
    app,
    "nitro up",
    "nitro up --port 9000 --runs-dir /data/runs",
    "nitro up --learners 4",
    "nitro train --api-url http://127.0.0.1:8470",
)
def up(
    *,
    port: Annotated[int, typer.Option(help="Port of the REST API.", min=1, max=65535)] = 8470,
    processes: Annotated[
        int | None, typer.Option(help="Actors to run at once; default: one per core.", min=1)
    ] = None,
    learners: Annotated[
        int, typer.Option(help="Jobs to train at once, each with its own learner.", min=1)
    ] = 1,
    learner_ranks: Annotated[
        int, typer.Option(help="Processes that share a learner's gradient steps.", min=1, max=16)
    ] = 1,
    environment_packages: EnvironmentPackages = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Run the local system in the foreground until Ctrl-C."""
    from nitro.cli.interrupts import Interrupts
    from nitro.local.own_environments import actor_variables
    from nitro.local.system import LocalSystem
    from nitro.settings import read_settings

    with (
        Interrupts() as interrupts,
        LocalSystem(
            runs_dir,
            api_port=port,
            lasting=True,
            processes=processes,
            learners=learners,
            learner_ranks=learner_ranks,
            cache_url=read_settings().cache_address,
            actor_variables=actor_variables(environment_packages),
        ) as system,
    ):
        system.wait_ready()
        interrupts.armed = True  # before the greeting, which promises that Ctrl-C works
        typer.echo(_greeting(system, Place(runs_dir=runs_dir)))
        while not interrupts.asked:
            system.check()
            interrupts.pause(_CHECK_S)
        typer.echo("stopping; running jobs resume from their checkpoints at the next start")


def _greeting(system: "LocalSystem", place: Place) -> str:
    from nitro.dashboard.page_link import shown_link

    private = sys.stdout.isatty()
    page = shown_link(system.api_url, system.token, private=private, place=place)
    token, lambda_token = (
        shlex.quote(str(path)) for path in (system.token_path, system.lambda_token_path)
    )
    return (
        f"page   {page}\n"
        f"API    {system.api_url}\n"
        f"token  {system.token_path}\n"
        f"logs   {system.logs}\n\n"
        f'  curl -H "Authorization: Bearer $(cat {token})" {system.api_url}/v1/jobs\n\n'
        "To see a fault, such as the next three actors lost (`{}` ends all):\n\n"
        f'  curl -X PUT -H "Authorization: Bearer $(cat {lambda_token})" '
        f"{system.lambda_url}/emulator/faults -d '{{\"crash_next\": 3}}'\n\n"
        "Ctrl-C ends it."
    )


@command(
    app,
    "nitro evaluate hopper-v5-3f2a",
    "nitro evaluate runs/hopper-v5-3f2a --episodes 100 --json",
    "nitro evaluate hopper-v5-3f2a --checkpoint best --video",
)
def evaluate(
    run: Run,
    *,
    episodes: Annotated[
        int | None,
        typer.Option(
            help="Number of episodes; default: 10, or 1 with --video.",
            min=1,
            max=10_000,
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the episodes.", min=0)] = 0,
    video: Annotated[
        bool, typer.Option("--video", help="Film the episodes into RUN/videos/.")
    ] = False,
    checkpoint: Checkpoint = None,
    as_json: AsJson = False,
    environment_packages: EnvironmentPackages = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Run deterministic episodes with a run's policy, in this process."""
    from nitro.afar.fetching import local_run, with_checkpoints
    from nitro.local.own_environments import own_packages
    from nitro.runs.evaluate import evaluate_run, evaluation_table

    folder = local_run(run, runs_dir, wanted=with_checkpoints)
    own_packages(environment_packages, runs=[folder])
    with foreign_code():
        report = evaluate_run(
            folder,
            episodes=episodes or (1 if video else 10),
            seed=seed,
            video=video,
            checkpoint=checkpoint,
        )
    if as_json:
        typer.echo(report.model_dump_json())
    else:
        show(evaluation_table(report))


@command(app, "nitro export hopper-v5-3f2a --out policy --checkpoint best")
def export(
    run: Run,
    *,
    out: Annotated[Path, typer.Option("--out", help="Folder to write to.")],
    checkpoint: Checkpoint = None,
    as_json: AsJson = False,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Write a run's policy as safetensors, JSON and ONNX."""
    from nitro.afar.fetching import local_run, with_checkpoints
    from nitro.runs.export import export_run

    folder = local_run(run, runs_dir, wanted=with_checkpoints)
    report = export_run(folder, out, which=checkpoint)
    if report.no_onnx:
        typer.echo(f"no policy.onnx: {report.no_onnx}", err=True)
    typer.echo(
        report.model_dump_json() if as_json else "\n".join(str(out / name) for name in report.files)
    )


@command(
    app,
    "nitro plot hopper-v5-3f2a",
    "nitro plot runs/hopper-v5-3f2a -o picture.png",
    "nitro plot hopper-v5-3f2a hopper-v5-81c0 hopper-v5-9d1e -o compared.pdf",
)
def plot(
    runs: Runs,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="A .png, .pdf or .svg to write; default: plots/run.png in the run's folder or "
            "plots/compared.png in the folder of the first of several runs.",
        ),
    ] = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Draw a run, or several runs together.

    One run: return, actors, boosting score and cost per round. Several: return by steps and by
    dollars, actors and dollars by steps. Seeds of one configuration become a mean with a band.
    """
    from nitro.afar.fetching import local_run, record_only
    from nitro.runs.drawing.compared_picture import draw_together
    from nitro.runs.drawing.picture import draw
    from nitro.runs.reading import distinct_runs, read_run

    folders = distinct_runs(runs, lambda run: local_run(run, runs_dir, wanted=record_only))
    found = [read_run(folder) for folder in folders]
    typer.echo(str(draw(found[0], output) if len(found) == 1 else draw_together(found, output)))


if __name__ == "__main__":
    main()
