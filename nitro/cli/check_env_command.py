"""`nitro check-env`: what a policy sees, and whether episodes can continue in another process."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import JsonValue

from nitro.cli.console import show
from nitro.cli.options import RUNS, AsJson, EnvironmentPackages
from nitro.errors import EXIT_FAILED, CommandError
from nitro.foreign_output import foreign_code

if TYPE_CHECKING:
    from nitro.cli.going_on_report import GoingOnReport
    from shared.contracts.job_spec import JobSpec
    from shared.environments.building import Env

_REPEATING_S = 10.0
"""How long to play the episodes that are then repeated."""

EXAMPLES = (
    "nitro check-env Hopper-v5",
    "nitro check-env Swimmer-v5 --set env_kwargs.max_episode_steps=100",
    "nitro check-env ALE/Qbert-v5 --set env_kwargs.terminal_on_life_loss=false --steps 5000",
    "nitro check-env Example/PointMass-v0 --environment-package point_mass --json",
)

Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Set a field of the environment: env_kwargs or wrappers; repeatable.",
    ),
]
SpecFile = Annotated[
    Path | None, typer.Option("--spec", help="YAML or JSON file of a job; options win.")
]


def check_env(
    env: Annotated[
        str | None, typer.Argument(help="Gymnasium environment.", show_default=False)
    ] = None,
    *,
    steps: Annotated[int, typer.Option(help="Number of steps to play and compare.", min=1)] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of episodes and actions.", min=0)] = 0,
    assignments: Assignments = None,
    spec: SpecFile = None,
    as_json: AsJson = False,
    environment_packages: EnvironmentPackages = None,
) -> None:
    """Check what a policy sees of an environment, and whether its episodes can continue elsewhere.

    Plays random actions twice: undisturbed, and passed between environments as saved states. If
    states cannot be saved, it repeats episodes by their seeds and actions. The exit code is 0 if
    all observations, rewards and ends are equal. It is 1 if episodes cannot continue, or if an
    observation or a reward is infinite or NaN.
    """
    import json

    from nitro.local.own_environments import kept_maker, own_packages
    from nitro.spec.spec_file import parsed_assignments
    from nitro.spec.train_spec import train_spec

    if env is None and spec is None:
        raise CommandError("ENV: name an environment, or give --spec")
    own_packages(environment_packages, known_here=kept_maker(RUNS, env or ""))
    named: dict[str, JsonValue] = {} if env is None else {"env_id": env}
    job = train_spec(file=spec, options=named | parsed_assignments(assignments or []))
    found = _tried(job, steps=steps, seed=seed)
    if as_json:
        typer.echo(json.dumps(found.as_json()))
    else:
        show(found.table())
    if not found.goes_on or found.not_finite:
        raise typer.Exit(EXIT_FAILED)


def _tried(job: "JobSpec", *, steps: int, seed: int) -> "GoingOnReport":
    from contextlib import closing

    from nitro.cli.going_on_report import GoingOnReport, queued
    from shared.environments.adapters import what_is_seen
    from shared.environments.building import make_environment
    from shared.environments.describing import describe
    from shared.environments.spaces import UnsupportedEnvironment
    from shared.environments.state.compliance import check_compliance
    from shared.environments.state.repeating import try_repeating
    from shared.environments.told_errors import error_text

    ref, repeated = job.environment_ref, None

    def make() -> "Env":
        return make_environment(ref)

    try:
        with foreign_code():
            environment = describe(ref)  # first: it explains values that are not Gymnasium's
            saved = check_compliance(make, num_steps=steps, seed=seed)
            with closing(make()) as env:
                seen = what_is_seen(env)
            if not environment.keeps_state:
                repeated = try_repeating(make, most_steps=steps, most_s=_REPEATING_S)
    except UnsupportedEnvironment as error:
        raise CommandError(str(error)) from error
    except Exception as error:  # an environment may raise anything
        raise CommandError(
            f"{ref.env_id} failed in the undisturbed episode: {error_text(error)}",
            exit_code=EXIT_FAILED,
        ) from error
    return GoingOnReport(
        environment=environment,
        job=queued(job, environment),
        saved=saved,
        repeated=repeated,
        seen=seen,
    )
