"""`nitro check-env`: whether episodes of an environment can go on in another process."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nitro.cli.console import show
from nitro.cli.options import RUNS, AsJson, EnvironmentPackages
from nitro.errors import EXIT_FAILED, CommandError
from nitro.foreign_output import foreign_code

if TYPE_CHECKING:
    from rich.table import Table

    from shared.contracts.job_spec import EnvironmentRef
    from shared.environments.state.compliance import Compliance

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
    """Check that an environment's episodes can go on elsewhere, bit for bit.

    Plays random actions twice: undisturbed, and handed from environment to environment as bytes.
    Exits with 0 if all observations, rewards and ends are the same, and with 1 if they are not.
    """
    import json
    from dataclasses import asdict

    from nitro.local.own_environments import kept_maker, own_packages
    from nitro.spec.spec_file import build_spec

    if env is None and spec is None:
        raise CommandError("ENV: name an environment, or give --spec")
    own_packages(environment_packages, known_here=kept_maker(RUNS, env or ""))
    options = {} if env is None else {"env_id": env}
    job = build_spec(file=spec, options=options, assignments=assignments or [])
    found = _checked(job.environment_ref, steps=steps, seed=seed)
    if as_json:
        typer.echo(json.dumps({"env_id": job.env_id, **asdict(found)}))
    else:
        show(_table(job.env_id, found))
    if found.why_not is not None:
        raise typer.Exit(EXIT_FAILED)


def _checked(ref: "EnvironmentRef", *, steps: int, seed: int) -> "Compliance":
    from shared.environments.building import make_environment
    from shared.environments.spaces import UnsupportedEnvironment
    from shared.environments.state.compliance import check_compliance

    try:
        with foreign_code():
            return check_compliance(lambda: make_environment(ref), num_steps=steps, seed=seed)
    except UnsupportedEnvironment as error:
        raise CommandError(str(error)) from error
    except Exception as error:  # an environment may raise anything
        raise CommandError(
            f"{ref.env_id} failed in the undisturbed game: {error!r}",
            exit_code=EXIT_FAILED,
        ) from error


def _table(env_id: str, found: "Compliance") -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, title=env_id, title_justify="left")
    kept = "yes, bit for bit" if found.why_not is None else f"no: {found.why_not}"
    rows = {"episodes go on": kept}
    if found.num_steps:
        at_ends = f"{found.num_left_at_ends} where an episode had ended"
        rows["compared"] = f"{found.num_steps} steps, {found.num_ends} ends of episodes"
        rows["left and taken up"] = f"{found.num_left} times, {at_ends}"
        rows["size"] = f"at most {found.snapshot_bytes} bytes"
        rows["time"] = (
            f"{found.leave_s * 1e3:.2f} ms to leave, {found.take_up_s * 1e3:.2f} ms to take up; "
            f"a step takes {found.step_s * 1e3:.3f} ms"
        )
    if found.num_not_left:
        rows["not left"] = f"at {found.num_not_left} moments, as the simulator cannot be saved then"
    for name, value in rows.items():
        table.add_row(name, Text(value))
    return table
