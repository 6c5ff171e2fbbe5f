"""`nitro plan`: a job's time and cost in each place, measured and projected."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import JsonValue

from nitro.cli.console import show
from nitro.cli.options import RUNS, AsJson, Assignments, EnvironmentPackages
from nitro.errors import CommandError
from nitro.foreign_output import foreign_code

if TYPE_CHECKING:
    from nitro.planning.report import Plan
    from shared.contracts.job_spec import JobSpec

EXAMPLES = (
    "nitro plan Hopper-v5",
    "nitro plan Hopper-v5 --to-return 2000 -o plan.png",
    "nitro plan Humanoid-v5 --algorithm ars --episode-steps 500",
    "nitro plan CartPole-v1 --total-steps 50_000 --json",
    "nitro plan Humanoid-v5 --total-steps 1e7 --samples-per-round 16384 --value-of-time 30",
)
_CDK = Path("cdk.json")
_BUSY = 0.5
"""Load average per core at which measured times may be too long."""


def plan(
    env: Annotated[str, typer.Argument(help="Gymnasium environment.", show_default=False)],
    *,
    to_return: Annotated[
        float | None,
        typer.Option(
            help="Train until this mean return, if known runs show the number of steps.",
            show_default=False,
        ),
    ] = None,
    total_steps: Annotated[
        str | None,
        typer.Option(
            metavar="STEPS", help="Environment steps, such as 1e6; default: as `nitro train`."
        ),
    ] = None,
    episode_steps: Annotated[
        int | None,
        typer.Option(
            help="Mean steps of an episode of ars or es; default: as many as it may have.",
            min=1,
            show_default=False,
        ),
    ] = None,
    assignments: Assignments = None,
    value_of_time: Annotated[
        float,
        typer.Option(help="Value of an hour's wait in dollars, for `balanced`.", min=0.0),
    ] = 10.0,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .png, .pdf or .svg of time against dollars."),
    ] = None,
    as_json: AsJson = False,
    environment_packages: EnvironmentPackages = None,
) -> None:
    """Estimate a job's time and cost here, on servers and serverless.

    Measures the environment and an update on this machine for a few seconds, and projects the rest
    like the ledger. `*` marks the Pareto front of time and cost.
    """
    from nitro.deploy.machine_checks import check_packages
    from nitro.local.own_environments import own_packages, require_registered
    from nitro.spec.short_forms import written_out
    from nitro.spec.spec_file import parsed_assignments

    packages = check_packages()
    if packages.verdict == "wrong":
        raise CommandError(
            f"A plan is measured on this machine. {packages.found}: {packages.advice}"
        )
    own_packages(environment_packages)
    require_registered(env)
    fields = written_out({"env_id": env, **parsed_assignments(assignments or [])}, RUNS)
    spec, steps, source = _job(fields, to_return, total_steps, episode_steps)
    if episode_steps is not None and not spec.searches:
        raise CommandError("--episode-steps: is for ars and es, whose rounds are of whole episodes")
    typer.echo(f"measuring {env} on this machine, for a few seconds", err=True)
    _tell_if_busy()
    found = planned(
        spec, steps, usd_per_hour=value_of_time, episode_steps=episode_steps, source=source
    )
    if output is not None:
        from nitro.planning.picture import draw_plan

        typer.echo(str(draw_plan(found, output)), err=True)
    if as_json:
        typer.echo(found.model_dump_json())
        return
    from nitro.planning.report import plan_view

    show(plan_view(found))


def _tell_if_busy() -> None:
    from shared.service.cores import usable_cores

    load, cores = os.getloadavg()[0], usable_cores()
    if load > _BUSY * cores:
        told = f"this machine is busy (load {load:.1f} on {cores} cores)"
        typer.echo(f"{told}: measured times may be too long", err=True)


def _job(
    fields: Mapping[str, JsonValue],
    to_return: float | None,
    total_steps: str | None,
    episode_steps: int | None,
) -> tuple["JobSpec", int, str]:
    """Return the job, its number of steps, and the source of this number."""
    from nitro.planning.known_searches import search_steps_to_return
    from nitro.planning.known_steps import steps_to_return
    from nitro.spec.total_steps import parse_steps, planned_steps
    from nitro.spec.train_spec import train_spec

    if to_return is not None and total_steps is not None:
        raise CommandError("--to-return: give it or --total-steps, not both")

    def job(steps: int | None) -> "JobSpec":
        return train_spec(options=fields, total_steps=steps)

    spec = job(None if total_steps is None else parse_steps(total_steps))
    source = ""
    if to_return is not None:
        if spec.searches:
            known = search_steps_to_return(spec, to_return, episode_steps=episode_steps)
        else:
            known = steps_to_return(spec, to_return)
        source = f"for a return of {to_return:,g}: {known.source}"
        spec = job(known.steps)
    if not spec.learns_in_order:
        raise CommandError(
            f"rounds_in_flight: must be 1 for a plan with {spec.algorithm}: if its rounds overlap, "
            "its gradient steps depend on the wait for actors"
        )
    planned = planned_steps(spec)
    if planned is None:
        raise CommandError(
            "samples_per_round: must be set for a plan: otherwise the steps of a round vary"
        )
    return spec, planned, source


def planned(
    spec: "JobSpec",
    steps: int,
    *,
    usd_per_hour: float,
    episode_steps: int | None = None,
    source: str = "",
) -> "Plan":
    """Measure a job here and return its plan.

    Raises:
        CommandError: Its environment cannot be built, or fails.
    """
    from nitro.deploy.doctor import read_deployment
    from nitro.planning.choice import choose
    from nitro.planning.measuring import measure
    from nitro.planning.prices import function_learner, learners
    from nitro.planning.report import Plan
    from nitro.planning.searching import measure_search
    from nitro.planning.ways import ACTORS, ways
    from shared.service.cores import usable_cores

    config = read_deployment(_CDK)
    with foreign_code():
        if spec.searches:
            workload = measure_search(spec, total_steps=steps, episode_steps=episode_steps)
        else:
            workload = measure(spec, total_steps=steps)
    kinds = [*learners(config)]
    on_functions = None if workload.images else function_learner(config, spec)
    if on_functions is not None:
        kinds.append(on_functions)
    here, actors = spec.actors.max, list(ACTORS)
    if spec.searches:
        most = workload.most_actors
        here, actors = min(here, most), [*(num for num in ACTORS if num < most), most]
    found = ways(workload, kinds, cores_here=usable_cores(), actors_here=here, actors=actors)
    choice = choose(found, usd_per_hour=usd_per_hour)
    table = config.price_table
    prices = f"{table.source} ({table.date})"
    return Plan.of(
        workload, found, choice, usd_per_hour=usd_per_hour, prices=prices, steps_source=source
    )
