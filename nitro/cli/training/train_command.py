"""The options of `nitro train`, and their wiring."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import JsonValue

from nitro.cli.options import (
    RUNS,
    Assignments,
    Detach,
    EnvironmentPackages,
    FreshSchedule,
    FromScratch,
    RunsDir,
)
from nitro.cli.training.field_options import FIELD_OPTIONS, with_field_options
from nitro.errors import CommandError
from nitro.hints import Place

if TYPE_CHECKING:
    from nitro.cli.training.train import TrainRequest
    from nitro.client.beginning import NewJob, Resumption
    from nitro.local.access import SystemOptions

_MOST_SEEDS = 100
"""A larger number is a typo."""
_job_option = partial(typer.Option, rich_help_panel="What to train")
_place_option = partial(typer.Option, rich_help_panel="Where", show_default=False)

Env = Annotated[
    str | None,
    typer.Argument(help="Gymnasium environment; default: Hopper-v5.", show_default=False),
]
TotalSteps = Annotated[
    str | None,
    _job_option(
        "--total-steps",
        metavar="STEPS",
        help="Environment steps, such as 1e6, in place of --rounds; default: 1e6, or 2e5 for "
        "Gymnasium's classic control. Or --total-timesteps.",
    ),
]
Seeds = Annotated[
    str | None,
    _job_option(
        metavar="N|FROM-TO|N,N,...",
        help="Train once with each seed, N for 1 to N, in parallel if cores allow, and summarise.",
    ),
]
Variables = Annotated[
    list[str] | None,
    _job_option(
        "--env",
        metavar="NAME[=VALUE]",
        help="Set a variable for the environment; without a value it is this shell's; repeatable.",
    ),
]
SpecFile = Annotated[Path | None, _job_option(help="YAML or JSON file of fields; options win.")]
Resume = Annotated[
    str | None,
    _job_option(
        metavar="JOB_ID",
        help="Continue a job; --total-steps, --rounds, --budget-usd and --max-wall-s raise limits.",
    ),
]
InitFrom = Annotated[
    str | None,
    _job_option(
        metavar="RUN[:best]",
        help="Start a new job from an earlier run's newest or best policy.",
    ),
]
IdempotencyKey = Annotated[
    str | None, _job_option(help="Submitting again with this key returns the same job.")
]
Track = Annotated[
    str | None,
    typer.Option(
        metavar="wandb|mlflow|trackio",
        help="Log the rounds in an experiment tracker, like `nitro track`.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the job with every value, and train nothing.")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Progress to stderr, one JSON object to stdout at the end.")
]
Processes = Annotated[
    int | None, _place_option(min=1, help="Actors to run at once; default: one per core.")
]
Parallel = Annotated[
    int | None,
    _place_option(min=1, help="With --seeds: jobs to train at once; default: half the cores."),
]
LearnerRanks = Annotated[
    int | None,
    _place_option(
        min=1,
        max=16,
        help="Processes that share the learner's gradient steps, one per GPU; default: 1.",
    ),
]
ApiUrl = Annotated[
    str | None,
    _place_option(help="REST API; default: NITRO_API_URL. Without either, a local system starts."),
]

EXAMPLES = (
    "nitro train",
    "nitro train CartPole-v1 --total-steps 50_000 --seed 1",
    "nitro train CartPole-v1 --seeds 1-5 --json",
    "nitro train Hopper-v5 --preset paper",
    "nitro train Walker2d-v5 --scaling nitro --actors 8:64 --budget-usd 2 --target-return 3000",
    "nitro train --scaling fixed:16 --learning-rate 3e-4 --value-coefficient 0.25",
    "nitro train --scaling kungfu --set scaling.smoothing=0.6",
    "nitro train --scaling schedule:hopper-v5-3f2a --seed 2",
    "nitro train Walker2d-v5 --scaling fixed:4 --steps-per-actor 512 --total-steps 1e6",
    "nitro train Hopper-v4 --algorithm impact",
    "nitro train Hopper-v5 --learner functions",
    "nitro train --spec job.yaml --rounds 5 --json",
    "nitro train --resume hopper-v5-3f2a --rounds 100",
    "nitro train --init-from hopper-v5-3f2a:best --learning-rate 1e-4",
    "nitro train Hopper-v5 --name baseline --tag sweep-1",
)


@with_field_options
def train(
    env: Env = None,
    *,
    total_steps: TotalSteps = None,
    seeds: Seeds = None,
    assignments: Assignments = None,
    variables: Variables = None,
    spec: SpecFile = None,
    resume: Resume = None,
    from_scratch: FromScratch = False,
    fresh_schedule: FreshSchedule = False,
    init_from: InitFrom = None,
    idempotency_key: IdempotencyKey = None,
    track: Track = None,
    detach: Detach = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    processes: Processes = None,
    parallel: Parallel = None,
    learner_ranks: LearnerRanks = None,
    environment_packages: EnvironmentPackages = None,
    runs_dir: RunsDir = RUNS,
    api_url: ApiUrl = None,
    **fields: JsonValue,
) -> None:
    """Train an agent and follow it. Without an API everything runs on this machine.

    With no options: a million steps, preset `standard`, rounds of 2,048 steps on eight actors.
    `--dry-run` shows every value. The same defaults complete a --spec file.

    Ctrl-C stops after the current update and keeps the checkpoint. A second Ctrl-C kills
    everything.
    """
    from nitro.cli.training.train import TrainRequest, asked_job, most_actors
    from nitro.client.beginning import Resumption
    from nitro.local.access import SystemOptions
    from nitro.settings import read_settings
    from nitro.spec.short_forms import own_variables
    from nitro.tracking.tracker import require_tracker

    here = not (api_url or read_settings().api_url)
    said = {each.path: fields[each.name] for each in FIELD_OPTIONS}
    said = {"env_id": env, **said, **own_variables(variables or [])}
    if track is not None:
        require_tracker(track)
    job = asked_job(
        said,
        total_steps=total_steps,
        assignments=assignments or [],
        spec_file=spec,
        init_from=init_from,
        idempotency_key=idempotency_key,
        resume=resume,
        from_scratch=from_scratch,
        fresh_schedule=fresh_schedule,
        runs_dir=runs_dir,
        here=here,
    )
    place = Place(runs_dir=runs_dir, api_url=api_url)
    if track is not None and (seeds is not None or detach):
        each = place.command("track", "JOB_ID", "--to", track)
        raise CommandError(
            f"--track: is for a single job without --detach; log others with: {each}"
        )
    chosen = _chosen_seeds(seeds, parallel, one=fields["seed"], resume=resume, key=idempotency_key)
    if dry_run:
        return _describe(job, environment_packages, place, here=here)
    if detach:
        from nitro.cli.training.detached import require_lasting

        require_lasting(api_url, runs_dir)
    if here and isinstance(job, Resumption):
        from nitro.runs.reading import find_run

        folder = find_run(job.job_id, runs_dir, "--resume").absolute()
        if not (runs_dir / folder.name).exists():
            raise CommandError(f"--resume: {folder} is not in {runs_dir}; add --runs-dir")
        job = replace(job, job_id=folder.name)
    request = TrainRequest(job=job, runs_dir=runs_dir, as_json=as_json, track=track, detach=detach)
    options = SystemOptions(
        processes=processes,
        learners=learners_for(chosen or (), parallel),
        parallel=parallel,
        learner_ranks=learner_ranks,
        environment_packages=environment_packages,
        most_actors=most_actors(job, runs_dir),
    )
    raise typer.Exit(_train(request, chosen, options, api_url))


def _chosen_seeds(
    seeds: str | None,
    parallel: int | None,
    *,
    one: object,
    resume: str | None,
    key: str | None,
) -> tuple[int, ...] | None:
    """Return the named seeds; None for a single job.

    Raises:
        CommandError: The seeds are malformed, or conflict with another option.
    """
    if seeds is None:
        if parallel is not None:
            raise CommandError("--parallel: is for several seeds; add --seeds, such as 1-5")
        return None
    from nitro.spec.seeds import parse_seeds

    for option, value in {"--seed": one, "--resume": resume, "--idempotency-key": key}.items():
        if value is not None:
            raise CommandError(f"--seeds: cannot be given together with {option}")
    try:
        return parse_seeds(seeds, most=_MOST_SEEDS)
    except ValueError as error:
        raise CommandError(f"--seeds: {error}") from error


def _describe(
    job: "NewJob | Resumption",
    environment_packages: list[str] | None,
    place: Place,
    *,
    here: bool,
) -> None:
    from nitro.client.beginning import Resumption
    from nitro.spec.dry_run import described

    if isinstance(job, Resumption):
        old = place.command("jobs", "show", job.job_id)
        raise CommandError(f"--dry-run: is for a new job; show an old job with: {old}")
    typer.echo(described(job.spec, here=here, environment_packages=environment_packages))


def _train(
    request: "TrainRequest",
    seeds: tuple[int, ...] | None,
    options: "SystemOptions",
    api_url: str | None,
) -> int:
    from nitro.cli.interrupts import Interrupts
    from nitro.cli.training.train import train as train_job
    from nitro.local.access import open_api

    opened = open_api(
        request.runs_dir,
        job=request.job,
        options=options,
        api_url=api_url,
        tell=partial(typer.echo, err=True),
    )
    with Interrupts() as interrupts, opened as api:
        if seeds is None:
            return train_job(request, api, interrupts=interrupts, stdout=sys.stdout)
        from nitro.cli.training.seeds import train_seeds

        return train_seeds(request, seeds, api, interrupts=interrupts, stdout=sys.stdout)


def learners_for(seeds: Sequence[int], parallel: int | None) -> int:
    """Return how many seeds to train at once; each keeps about two cores busy."""
    from shared.service.cores import usable_cores

    return max(1, min(len(seeds), parallel or usable_cores() // 2))
