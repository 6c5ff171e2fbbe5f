"""The work of `nitro scheduler`, once its options are read."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import typer
from rich.table import Table

from experiments.minionsrl.episode import SchedulingEpisode
from experiments.minionsrl.network import MAX_CHOICES
from experiments.minionsrl.practice_runs import (
    FEWEST_ROUNDS,
    long_enough,
    practised_range,
    read_runs,
)
from experiments.minionsrl.real_runs import RealRuns
from experiments.minionsrl.recorded_runs import RecordedRuns
from experiments.minionsrl.training import (
    TrainedScheduler,
    TrainingReport,
    train_scheduler,
)
from nitro.cli.console import show
from nitro.cli.interrupts import Interrupts
from nitro.client.beginning import NewJob
from nitro.errors import EXIT_INTERRUPTED, CommandError
from nitro.hints import Place
from nitro.local.access import SystemOptions, open_api
from nitro.local.left_over import end_left_over
from nitro.runs.summary import duration
from shared.contracts.job_spec import JobSpec
from shared.contracts.minions_agent import MinionsAgent
from shared.contracts.scaling_spec import NitroScaling


def train_and_write(
    build: Callable[..., JobSpec],
    *,
    env_id: str | None,
    runs: Path | None,
    episodes: int,
    seed: int,
    output: Path,
    as_json: bool,
    api_url: str | None,
    runs_dir: Path,
) -> None:
    """Train an agent on recorded runs, or else on real ones; write it and say what it took.

    Args:
        build: Makes the job of a run from what the user gave, on top of `base` if that is given.
        env_id: Environment whose recorded runs are meant.
        runs: Recorded runs: one, or a folder of them.
        episodes: Runs to learn from.
        seed: Of weights, draws and real runs.
        output: Where the agent is written, as JSON.
        as_json: Whether the report is one JSON object.
        api_url: Where real runs are made; None is a local system.
        runs_dir: Folder of real runs.

    Raises:
        CommandError: A run, the job or the place for the agent cannot be used.
        typer.Exit: It was interrupted; the best agent so far has been written.
    """
    _require_place(output)
    if runs is not None:
        trained = _on_recorded(runs, env_id, build, episodes=episodes, seed=seed)
    else:
        trained = _on_real(_checked(build()), api_url, runs_dir, episodes=episodes, seed=seed)
    _write(trained.agent, output)
    _tell(trained.report, output, as_json=as_json)
    if trained.report.interrupted:
        done = f"{trained.report.episodes} of {episodes} runs"
        typer.echo(f"interrupted after {done}; {output} has the best agent of these", err=True)
        raise typer.Exit(EXIT_INTERRUPTED)


def _tell(report: TrainingReport, output: Path, *, as_json: bool) -> None:
    if as_json:
        typer.echo(report.model_dump_json())
    else:
        show(_report_table(report))
        used = Place().command("train", "--scaling", f"minionsrl:{output}")
        typer.echo(f"use it with: {used}")


def _require_place(output: Path) -> None:
    if output.is_dir() or not output.parent.is_dir():
        raise CommandError(f"--output {output}: must be a file in a folder that exists")


def _write(agent: MinionsAgent, output: Path) -> None:
    try:
        output.write_text(agent.model_dump_json() + "\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--output {output}: cannot be written: {error.strerror}") from error


def _checked(spec: JobSpec) -> JobSpec:
    if spec.actors.max > MAX_CHOICES:
        raise CommandError(
            f"actors.max: {spec.actors.max} exceeds {MAX_CHOICES}, the most an agent can choose; "
            "give --actors"
        )
    return spec


def _on_recorded(
    folder: Path,
    env_id: str | None,
    build: Callable[..., JobSpec],
    *,
    episodes: int,
    seed: int,
) -> TrainedScheduler:
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
    spec: JobSpec, api_url: str | None, runs_dir: Path, *, episodes: int, seed: int
) -> TrainedScheduler:
    def tell(index: int, episode: SchedulingEpisode) -> None:
        typer.echo(
            f"run {index + 1} of {episodes}: reward {sum(episode.rewards):.2f}, "
            f"${episode.cost_usd:.4f}",
            err=True,
        )

    say = partial(typer.echo, err=True)
    job, options = NewJob(spec=spec), SystemOptions(most_actors=spec.actors.max)
    opened = open_api(runs_dir, job=job, options=options, api_url=api_url, tell=say)
    with Interrupts() as interrupts, opened as api:
        if api.system is not None:
            end_left_over(api, keep=None, tell=say, pause=interrupts.pause)
        interrupts.armed = True
        source = RealRuns(api, spec, interrupts=interrupts)
        return train_scheduler(source, name="real", episodes=episodes, seed=seed, progress=tell)


def _report_table(report: TrainingReport) -> Table:
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
