"""`nitro track`: runs and jobs in experiment trackers."""

from typing import Annotated

import typer

from nitro.cli.options import RUNS, ApiUrl, Run, RunsDir

EXAMPLES = (
    "nitro track hopper-v5-3f2a --to mlflow",
    "nitro track hopper-v5-3f2a --to wandb --follow",
    "nitro track runs/hopper-v5-3f2a --to trackio --project hopper",
)


def track(
    run: Run,
    *,
    to: Annotated[str, typer.Option(metavar="wandb|mlflow|trackio", help="Which tracker.")],
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on until the job has ended.")
    ] = False,
    project: Annotated[str, typer.Option(help="Project, or experiment, in the tracker.")] = "nitro",
    api_url: ApiUrl = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Log a run in an experiment tracker, each round once.

    It runs on this machine and reads the run's record from its folder, or else from the API that
    trains it. With --follow or --api-url it reads from the API. A repeated call continues after the
    last logged round. Trackers read their own settings from the environment, such as WANDB_MODE or
    MLFLOW_TRACKING_URI.
    """
    from time import sleep

    from nitro.afar.fetching import local_run, record_only
    from nitro.client.connection import connect, has_api
    from nitro.errors import CommandError
    from nitro.runs.reading import is_here, read_run
    from nitro.tracking.tracking import track_job, track_run

    of_api = has_api(api_url, runs_dir)
    if follow and not of_api:
        raise CommandError("--follow: no API trains this run; leave it out for a run's folder")
    if follow or api_url or (of_api and not is_here(run, runs_dir)):
        with connect(api_url, runs_dir) as client:
            told = track_job(
                client,
                run,
                to,
                project=project,
                runs_dir=runs_dir,
                to_the_end=follow,
                pause=sleep,
            )
    else:
        folder = local_run(run, runs_dir, wanted=record_only)
        told = track_run(read_run(folder), to, project=project, runs_dir=runs_dir)
    typer.echo(f"{told} rounds logged to {to}, project {project}")
