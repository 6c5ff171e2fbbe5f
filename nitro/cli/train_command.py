"""The options of `nitro train`, and what is wired for them."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nitro.cli.console import examples, reported
from nitro.cli.options import RUNS, EnvironmentPackages, FromScratch, RunsDir
from nitro.errors import CommandError

if TYPE_CHECKING:
    from nitro.cli.train import Api, TrainRequest
    from nitro.settings import CliSettings

_JOB = "What to train"
_WHERE = "Where"

Env = Annotated[
    str | None,
    typer.Argument(help="Gymnasium environment; default: Hopper-v5.", show_default=False),
]
Algorithm = Annotated[
    str | None,
    typer.Option(
        "--algorithm",
        metavar="ppo|impact|impala",
        help="What learns; rounds of the last two overlap.",
        rich_help_panel=_JOB,
    ),
]
PresetName = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="paper|standard",
        help="Hyper-parameters to start from; see: nitro presets.",
        rich_help_panel=_JOB,
    ),
]
Rounds = Annotated[int | None, typer.Option(help="Policy updates.", rich_help_panel=_JOB)]
Seed = Annotated[
    int | None, typer.Option(help="Equal seeds train equal policies.", rich_help_panel=_JOB)
]
Actors = Annotated[
    str | None,
    typer.Option(metavar="MIN:MAX", help="Actors one round may launch.", rich_help_panel=_JOB),
]
Scaling = Annotated[
    str | None,
    typer.Option(
        metavar="POLICY[:ARG]",
        help="Decides the number of actors; `nitro policies` lists them.",
        rich_help_panel=_JOB,
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget-usd", help="Hard cap on the cost, as projected to AWS.", rich_help_panel=_JOB
    ),
]
MaxWall = Annotated[
    float | None,
    typer.Option("--max-wall-s", help="Stop after so many seconds.", rich_help_panel=_JOB),
]
TargetReturn = Annotated[
    float | None,
    typer.Option(
        "--target-return",
        help="Stop when an evaluation has this mean return.",
        rich_help_panel=_JOB,
    ),
]
StepsPerActor = Annotated[
    int | None,
    typer.Option("--steps-per-actor", help="Environment steps per actor.", rich_help_panel=_JOB),
]
EvalEvery = Annotated[
    int | None,
    typer.Option("--eval-every", help="Rounds between evaluations; 0: none.", rich_help_panel=_JOB),
]
EvalEpisodes = Annotated[
    int | None,
    typer.Option("--eval-episodes", help="Episodes per evaluation.", rich_help_panel=_JOB),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Any field of the job, the value as JSON or YAML; repeatable.",
        rich_help_panel=_JOB,
    ),
]
SpecFile = Annotated[
    Path | None,
    typer.Option("--spec", help="YAML or JSON file of fields; options win.", rich_help_panel=_JOB),
]
Resume = Annotated[
    str | None,
    typer.Option(
        metavar="JOB_ID",
        help="Continue a job; --rounds, --budget-usd and --max-wall-s raise its limits.",
        rich_help_panel=_JOB,
    ),
]
IdempotencyKey = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        help="Submitting again with this key gives the same job.",
        rich_help_panel=_JOB,
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the job with every value, and train nothing.")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Progress to stderr, one JSON object to stdout at the end.")
]
Processes = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Actors that really run at once; default: cores.",
        rich_help_panel=_WHERE,
        show_default=False,
    ),
]
ApiUrl = Annotated[
    str | None,
    typer.Option(
        "--api-url",
        help="REST API; default: NITRO_API_URL, or else a local system is started.",
        rich_help_panel=_WHERE,
        show_default=False,
    ),
]


EXAMPLES = examples(
    "nitro train",
    "nitro train CartPole-v1 --rounds 20 --seed 1",
    "nitro train Walker2d-v5 --actors 8:64 --budget-usd 2 --target-return 3000",
    "nitro train --scaling fixed:16 --set hyperparameters.learning_rate=3e-4",
    "nitro train --scaling kungfu --set scaling.smoothing=0.6",
    "nitro train --scaling schedule:hopper-v5-3f2a --seed 2",
    "nitro train Hopper-v4 --preset standard --scaling fixed:2 --steps-per-actor 1024 --rounds 488",
    "nitro train Hopper-v4 --algorithm impact",
    "nitro train --spec job.yaml --rounds 5 --json",
    "nitro train --resume hopper-v5-3f2a --rounds 100",
)


@reported
def train(
    env: Env = None,
    *,
    algorithm: Algorithm = None,
    preset: PresetName = None,
    rounds: Rounds = None,
    seed: Seed = None,
    actors: Actors = None,
    scaling: Scaling = None,
    budget_usd: Budget = None,
    max_wall_s: MaxWall = None,
    target_return: TargetReturn = None,
    steps_per_actor: StepsPerActor = None,
    eval_every: EvalEvery = None,
    eval_episodes: EvalEpisodes = None,
    assignments: Assignments = None,
    spec: SpecFile = None,
    resume: Resume = None,
    from_scratch: FromScratch = False,
    idempotency_key: IdempotencyKey = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    processes: Processes = None,
    environment_packages: EnvironmentPackages = None,
    runs_dir: RunsDir = RUNS,
    api_url: ApiUrl = None,
) -> None:
    """Train an agent and follow it; without an API everything runs on this machine.

    Ctrl-C stops after the current update and keeps the checkpoint; twice kills everything.
    """
    from nitro.cli.train import Choices, make_request
    from nitro.spec.scaling_option import parse_scaling
    from nitro.spec.spec_file import parse_actors

    choices = Choices(
        fields={
            "env_id": env,
            "algorithm": algorithm,
            "preset": preset,
            "seed": seed,
            "actors": parse_actors(actors) if actors else None,
            "scaling": parse_scaling(scaling, runs_dir=runs_dir) if scaling else None,
            "stop.target_return": target_return,
            "steps_per_actor": steps_per_actor,
            "evaluation.every_rounds": eval_every,
            "evaluation.episodes": eval_episodes,
        },
        max_rounds=rounds,
        budget_usd=budget_usd,
        max_wall_s=max_wall_s,
        assignments=assignments or [],
        spec_file=spec,
        resume=resume,
        from_scratch=from_scratch,
        idempotency_key=idempotency_key,
    )
    request = make_request(choices, runs_dir=runs_dir, as_json=as_json)
    if dry_run:
        typer.echo(_described(request, environment_packages))
    else:
        where = Where(
            api_url=api_url, processes=processes, environment_packages=environment_packages
        )
        raise typer.Exit(_train(request, where))


def _described(request: "TrainRequest", environment_packages: list[str] | None) -> str:
    from nitro.spec.dry_run import described

    if request.spec is None:
        raise CommandError("--dry-run: shows a new job; look at an old one by: nitro jobs show")
    return described(request.spec, environment_packages=environment_packages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The options that say on what system to train; None is not given."""

    api_url: str | None
    processes: int | None
    environment_packages: list[str] | None


def _train(request: "TrainRequest", where: Where) -> int:
    from nitro.cli.interrupts import Interrupts
    from nitro.cli.train import train as train_job

    with Interrupts() as interrupts, open_api(request, where) as api:
        return train_job(request, api, interrupts=interrupts, stdout=sys.stdout)


def _refuse_local_options(where: Where, *, used: str) -> None:
    local = {
        "--processes": where.processes,
        "--environment-package": where.environment_packages,
    }
    for option, value in local.items():
        if value is not None:
            raise CommandError(f"{option}: is for a local system that is started, but {used}")


@contextlib.contextmanager
def open_api(request: "TrainRequest", where: Where) -> Iterator["Api"]:
    """Connect to the API that is meant or is up here, or else start the local system."""
    from nitro.cli.train import Api
    from nitro.client.connection import connect, read_settings
    from nitro.local.state_folder import StateFolder

    settings = read_settings()
    if where.api_url or settings.api_url:
        _refuse_local_options(where, used="an API is named")
        with connect(where.api_url, request.runs_dir) as client:
            yield Api(client=client, system=None)
        return
    if StateFolder(request.runs_dir).is_served():
        used = f"that of `nitro up` on {request.runs_dir} is used"
        _refuse_local_options(where, used=used)
        typer.echo(used, err=True)
        with connect(None, request.runs_dir) as client:
            yield Api(client=client, system=None)
        return
    with _started(request, where, settings) as api:
        yield api


@contextlib.contextmanager
def _started(request: "TrainRequest", where: Where, settings: "CliSettings") -> Iterator["Api"]:
    """Start the local system for as long."""
    from nitro.cli.train import Api, most_actors
    from nitro.client.client import NitroClient
    from nitro.local.own_environments import actor_variables, require_registered
    from nitro.local.system import LocalSystem

    variables = actor_variables(where.environment_packages)
    if request.spec is not None:
        require_registered(request.spec.env_id)
    typer.echo("starting cache, emulator, scaler and learner on this machine", err=True)
    with (
        LocalSystem(
            request.runs_dir,
            processes=where.processes,
            max_concurrency=max(1000, most_actors(request)),
            cache_url=settings.cache_address,
            actor_variables=variables,
        ) as system,
        NitroClient(system.api_url, system.token) as client,
    ):
        yield Api(client=client, system=system)
        system.close(at_once=True)  # the job has ended: there is nothing to hand back
