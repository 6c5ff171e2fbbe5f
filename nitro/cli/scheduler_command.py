"""`nitro scheduler`: train the agent that the scaling policy `minionsrl` asks."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nitro.cli.console import examples, reported, show
from nitro.cli.options import RUNS, ApiUrl, RunsDir
from nitro.errors import EXIT_INTERRUPTED, CommandError

if TYPE_CHECKING:
    from pydantic import JsonValue
    from rich.table import Table

    from experiments.minionsrl.episode import SchedulingEpisode
    from experiments.minionsrl.training import TrainedScheduler, TrainingReport
    from shared.contracts.job_spec import JobSpec
    from shared.contracts.minions_agent import MinionsAgent

app = typer.Typer(
    help="Train the agent of the scaling policy `minionsrl`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Env = Annotated[
    str | None,
    typer.Argument(
        help="Environment of real runs, or whose recorded ones are meant.", show_default=False
    ),
]
Runs = Annotated[
    Path | None,
    typer.Option(help="Practise on a model of these recorded runs: one, or a folder of them."),
]
Rounds = Annotated[int | None, typer.Option(help="Rounds of a run.", min=1)]
Actors = Annotated[str | None, typer.Option(metavar="MIN:MAX", help="Actors one round may have.")]
TargetReturn = Annotated[
    float | None,
    typer.Option(
        "--target-return", help="Mean return of an evaluation that a run is meant to reach."
    ),
]
Budget = Annotated[float | None, typer.Option("--budget-usd", help="What one run may cost.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Any field of the job; repeatable."),
]


@app.callback()
def _group() -> None:
    """Keep `train` a command of its own although it is the only one."""


@app.command(
    epilog=examples(
        "nitro scheduler train Hopper-v5 --runs runs",
        "nitro scheduler train --runs runs/hopper-v5-3f2a --target-return 600 -o hopper.json",
        "nitro scheduler train CartPole-v1 --episodes 20 --rounds 10 --actors 2:8",
        "nitro train --scaling minionsrl:agent.json",
    )
)
@reported
def train(
    env: Env = None,
    *,
    runs: Runs = None,
    episodes: Annotated[int, typer.Option(help="Runs to learn from.", min=1)] = 100,
    rounds: Rounds = None,
    actors: Actors = None,
    target_return: TargetReturn = None,
    budget_usd: Budget = None,
    assignments: Assignments = None,
    spec: Annotated[Path | None, typer.Option(help="YAML or JSON file of the job.")] = None,
    seed: Annotated[int, typer.Option(help="Of weights, draws and real runs.", min=0)] = 0,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the agent is written, as JSON.")
    ] = Path("agent.json"),
    as_json: Annotated[bool, typer.Option("--json", help="The report as one JSON object.")] = False,
    api_url: ApiUrl = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Train a scheduler on recorded runs (--runs), or on real ones, and say what that cost.

    Ctrl-C ends it with the best agent so far.
    """
    from nitro.spec.spec_file import build_spec, parse_actors

    _require_torch()
    if env is None and runs is None and spec is None:
        raise CommandError(
            "ENV: name the environment of the real runs, or give --spec, or recorded ones by --runs"
        )
    _require_place(output)
    options: dict[str, JsonValue] = {
        "env_id": env,
        "seed": seed,
        "actors": parse_actors(actors) if actors else None,
        "stop.max_rounds": rounds,
        "stop.target_return": target_return,
        "stop.budget_usd": budget_usd,
    }
    given = {path: value for path, value in options.items() if value is not None}
    if runs is None and spec is None:
        given["evaluation.every_rounds"] = 1  # the agent looks at the newest evaluation
    build = partial(build_spec, file=spec, options=given, assignments=assignments or [])
    if runs is not None:
        trained = _on_recorded(runs, env, build, episodes=episodes, seed=seed)
    else:
        trained = _on_real(_checked(build()), api_url, runs_dir, episodes=episodes, seed=seed)
    _write(trained.agent, output)
    _tell(trained.report, output, as_json=as_json)
    if trained.report.interrupted:
        done = f"{trained.report.episodes} of {episodes} runs"
        typer.echo(f"interrupted after {done}; {output} has the best agent of these", err=True)
        raise typer.Exit(EXIT_INTERRUPTED)


def _tell(report: "TrainingReport", output: Path, *, as_json: bool) -> None:
    if as_json:
        typer.echo(report.model_dump_json())
    else:
        show(_report_table(report))
        typer.echo(f"use it by: nitro train --scaling minionsrl:{output}")


def _require_torch() -> None:
    if find_spec("torch") is None:
        raise CommandError("this needs PyTorch: pip install -e '.[local]' in a clone")


def _require_place(output: Path) -> None:
    if output.is_dir() or not output.parent.is_dir():
        raise CommandError(f"--output {output}: must be a file in a folder that is there")


def _write(agent: "MinionsAgent", output: Path) -> None:
    try:
        output.write_text(agent.model_dump_json() + "\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--output {output}: cannot be written: {error.strerror}") from error


def _checked(spec: "JobSpec") -> "JobSpec":
    from experiments.minionsrl.network import MAX_CHOICES

    if spec.actors.max > MAX_CHOICES:
        raise CommandError(
            f"actors.max: {spec.actors.max} are more than the {MAX_CHOICES} numbers an agent can "
            "choose among; give --actors"
        )
    return spec


def _on_recorded(
    folder: Path,
    env_id: str | None,
    build: "Callable[..., JobSpec]",
    *,
    episodes: int,
    seed: int,
) -> "TrainedScheduler":
    from experiments.minionsrl.practice_runs import (
        FEWEST_ROUNDS,
        long_enough,
        practised_range,
        read_runs,
    )
    from experiments.minionsrl.recorded_runs import RecordedRuns
    from experiments.minionsrl.training import train_scheduler
    from shared.contracts.scaling_spec import NitroScaling

    found = read_runs(folder, env_id)
    recorded = long_enough(found)
    if left_out := [run.folder.name for run in found if run not in recorded]:
        why = f"fewer than {FEWEST_ROUNDS} rounds"
        typer.echo(f"left out, with {why}: {', '.join(left_out)}", err=True)
    # As the first was, but for its scaling: that might not fit another range, and the agent scales.
    update = {"scaling": NitroScaling(), "actors": practised_range(recorded)}
    base = recorded[0].job.spec.model_copy(update=update)
    source = RecordedRuns(recorded, _checked(build(base=base)), seed=seed)
    return train_scheduler(
        source,
        name="recorded",
        episodes=episodes,
        seed=seed,
        recorded_usd=source.recorded_usd,
        progress=lambda _index, _episode: None,
    )


def _on_real(
    spec: "JobSpec", api_url: str | None, runs_dir: Path, *, episodes: int, seed: int
) -> "TrainedScheduler":
    from rich.console import Console

    from experiments.minionsrl.real_runs import RealRuns
    from experiments.minionsrl.training import train_scheduler
    from nitro.cli.interrupts import Interrupts
    from nitro.cli.train import TrainRequest, end_left_over
    from nitro.cli.train_command import Where, open_api

    def tell(index: int, episode: "SchedulingEpisode") -> None:
        typer.echo(
            f"run {index + 1} of {episodes}: reward {sum(episode.rewards):.2f}, "
            f"${episode.cost_usd:.4f}",
            err=True,
        )

    request = TrainRequest(spec=spec, runs_dir=runs_dir, as_json=False)
    where = Where(api_url=api_url, processes=None, environment_packages=None)
    with Interrupts() as interrupts, open_api(request, where) as api:
        if api.system is not None:
            end_left_over(api, keep=None, console=Console(stderr=True), pause=interrupts.pause)
        interrupts.armed = True
        source = RealRuns(api, spec, interrupts=interrupts)
        return train_scheduler(source, name="real", episodes=episodes, seed=seed, progress=tell)


def _report_table(report: "TrainingReport") -> "Table":
    from rich.table import Table

    from nitro.runs.summary import duration

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    real = report.source == "real"
    took = "" if real else " (would have taken)"
    cost = "" if real else " (would have cost)"
    for name, value in (
        ("runs", f"{report.episodes} {report.source}, {report.rounds} rounds"),
        ("reward", f"{report.first_reward:.2f} at first, {report.last_reward:.2f} at last"),
        ("kept", f"run {report.best_episode + 1}, reward {report.best_reward:.2f}"),
        ("time here", duration(report.wall_s)),
        (f"time of the runs{took}", duration(report.run_s)),
        (f"cost of the runs{cost}", f"{report.run_usd:.4f} USD"),
        *((("cost of the records", f"{report.recorded_usd:.4f} USD"),) if not real else ()),
    ):
        table.add_row(name, value)
    return table
