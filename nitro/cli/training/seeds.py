"""`nitro train --seeds`: one job with several seeds in parallel, and a summary."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from nitro.cli.interrupts import Interrupts
from nitro.cli.progress import trouble
from nitro.cli.training.conclusion import exit_code, how_to_go_on, made, tell_commands
from nitro.cli.training.detached import leave
from nitro.cli.training.train import TrainRequest, advice_for
from nitro.client.beginning import NewJob
from nitro.client.errors import ApiUnreachableError, require_admitted
from nitro.client.follow import Snapshot, follow, stop_unfinished
from nitro.errors import EXIT_FAILED, CommandError
from nitro.hints import Place
from nitro.local.access import Api
from nitro.local.left_over import end_left_over
from nitro.runs.curves import recent_return
from nitro.runs.finished import finished_folder
from nitro.runs.reading import read_run
from nitro.runs.seeds import SeedsSummary, SeedSummary, seeds_table, sum_up
from nitro.runs.summary import duration, number, summarise
from nitro.tables import Output, columns_table, live_display, print_text
from shared.contracts.jobs import FINISHED, Job

_LOOK_S = 0.5
"""Polling interval of a job, for few jobs."""
_LEAST_S = 0.1
"""Between polls of two jobs: the shortest interval of calls to an API."""
_NUMBERS = frozenset({"seed", "round", "evaluation", "training", "time left", "USD"})
_TENTHS = 10


def train_seeds(
    request: TrainRequest,
    seeds: Sequence[int],
    api: Api,
    *,
    interrupts: Interrupts,
    stdout: TextIO,
) -> int:
    """Train a job once with each seed, and return the exit code."""
    if not isinstance(request.job, NewJob):
        raise CommandError("--seeds: is for new jobs; continue each seed's run with --resume")
    console = Output(file=None if request.as_json else stdout, stderr=request.as_json)
    if api.system is not None:
        end_left_over(
            api,
            keep=None,
            tell=lambda text: console.print(text, style="yellow", soft_wrap=True),
            pause=interrupts.pause,
        )
    job_ids: dict[int, str] = {}
    jobs: list[Job] = []
    try:
        for seed in seeds:
            spec = request.job.spec.model_copy(update={"seed": seed})
            jobs.append(api.client.submit(spec))
            job_ids[seed] = jobs[-1].job_id
        if request.detach:
            return leave(jobs, api, as_json=request.as_json, console=console, stdout=stdout)
        interrupts.armed = True
        with live_display(console) as live:
            snapshots = _watch(job_ids, api, interrupts, _SeedsView(console, live))
    except (KeyboardInterrupt, SystemExit, CommandError, BrokenPipeError):
        for job_id in job_ids.values():
            typer.echo(_left(job_id, api), err=True)
        raise
    if all(snapshot.job.environment is None for snapshot in snapshots.values()):
        require_admitted(snapshots[seeds[0]].job)
    interrupts.armed = False  # nothing is left to stop
    return _conclude([snapshots[seed] for seed in seeds], request, api, console, stdout)


def _left(job_id: str, api: Api) -> str:
    """Report the state of a job that is no longer followed."""
    if api.system is not None:
        return f"interrupted; continue with: {api.place.command('train', '--resume', job_id)}"
    stop = api.place.command("jobs", "stop", job_id)
    return f"it runs on unless it was stopped; end it with: {stop}"


class _SeedsView:
    """A line for each seed: redrawn in place on a terminal, otherwise printed at every tenth."""

    def __init__(self, console: Console, live: Live | None) -> None:
        self._console = console
        self._live = live
        self._told: dict[int, tuple[str, int]] = {}
        self._troubled: dict[int, int] = {}

    def show(self, snapshots: Mapping[int, Snapshot]) -> None:
        """Show the jobs' progress by seed, and lost actors once a round."""
        for seed, snapshot in snapshots.items():
            troubled = sum(bool(record.trouble.latest) for record in snapshot.records)
            if troubled > self._troubled.get(seed, 0):
                self._troubled[seed] = troubled
                self.note(f"seed {seed}: {trouble(snapshot.records)}")
        if self._live is not None:
            self._live.update(progress_table(snapshots, width=self._console.width))
            return
        for seed, snapshot in snapshots.items():
            progress = snapshot.job.progress
            share = snapshot.job.spec.stop.share_done(progress.rounds, progress.env_steps)
            done = int(_TENTHS * share)
            if self._told.get(seed) != (snapshot.job.status, done):
                self._told[seed] = (snapshot.job.status, done)
                self.note("  ".join(f"{name} {cell}" for name, cell in _cells(snapshot).items()))

    def note(self, text: str) -> None:
        """Print a line."""
        self._console.print(Text(text), soft_wrap=True)


def progress_table(snapshots: Mapping[int, Snapshot], *, width: int) -> Table:
    """Return the progress of jobs of several seeds, one line each."""
    rows = [_cells(snapshot) for snapshot in snapshots.values()]
    columns: dict[str, Sequence[str]] = {name: [row[name] for row in rows] for name in rows[0]}
    return columns_table(columns, numbers=_NUMBERS, uncut=6, width=width)


def _cells(snapshot: Snapshot) -> dict[str, str]:
    job = snapshot.job
    left_s = None if job.status in FINISHED else snapshot.eta_s
    return {
        "seed": str(job.spec.seed),
        "status": job.status,
        "round": job.spec.stop.of_rounds(snapshot.finished_rounds),
        "evaluation": number(job.progress.last_return),
        "training": number(snapshot.training_return),
        "time left": "–" if left_s is None else duration(left_s),
        "USD": f"{job.spent_usd:.4f}",
        "job": job.job_id,
    }


def _watch(
    job_ids: dict[int, str], api: Api, interrupts: Interrupts, view: _SeedsView
) -> dict[int, Snapshot]:
    """Follow jobs to their ends; return the outcomes by seed."""
    every_s = max(_LEAST_S, _LOOK_S / len(job_ids))
    following = {
        seed: follow(api.client, job_id, check=api.check, pause=interrupts.pause, every_s=every_s)
        for seed, job_id in job_ids.items()
    }
    latest: dict[int, Snapshot] = {}
    begun = told = stopped = False
    while following:
        for seed, looks in [*following.items()]:
            snapshot = next(looks, None)
            if snapshot is None:
                del following[seed]
                continue
            latest[seed] = snapshot
            if not begun and snapshot.job.environment is not None:
                begun = True
                _begin(snapshot.job, api, view)
            if interrupts.asked and not told:
                told = True
                again = "leave them" if api.system is None else "kill everything"
                view.note(f"stopping all after their current updates; Ctrl-C again to {again}")
            if interrupts.asked and not stopped:
                # Repeated at the next poll if the API does not answer; polling has its own
                # patience.
                with contextlib.suppress(ApiUnreachableError):
                    # Waiting jobs first: none of them should start now.
                    for job_id in reversed(job_ids.values()):
                        stop_unfinished(api.client, job_id)
                    stopped = True
            view.show({seed: latest[seed] for seed in job_ids if seed in latest})
    return latest


def _begin(job: Job, api: Api, view: _SeedsView) -> None:
    """Print what holds for every seed, and wait for the jobs' admission."""
    if job.environment is not None:
        warnings = (f"warning: {text}" for text in job.warnings)
        advice = advice_for(job, job.environment, api)
        for line in (*job.environment.preprocessing, *warnings, *advice):
            view.note(line)
    api.wait_ready()


def _conclude(
    snapshots: Sequence[Snapshot],
    request: TrainRequest,
    api: Api,
    console: Console,
    stdout: TextIO,
) -> int:
    spec = snapshots[0].job.spec
    seeds = [_seed_summary(snapshot, request.runs_dir, api) for snapshot in snapshots]
    summary = sum_up(seeds, env_id=spec.env_id, algorithm=spec.algorithm, preset=spec.preset)
    console.print()
    console.print(seeds_table(summary, picture=_picture(summary, console), width=console.width))
    for snapshot, each in zip(snapshots, seeds, strict=True):
        job = snapshot.job
        for told in (job.error, how_to_go_on(job, wall_s=each.wall_s, place=api.place)):
            if told:
                print_text(console, f"seed {each.seed}: {told}")
    if all(each.run_dir is not None for each in seeds):
        tell_commands(_next(seeds, api.place), console)
    if request.as_json:
        stdout.write(summary.model_dump_json() + "\n")
        stdout.flush()
    codes = [exit_code(each) for each in seeds]
    return EXIT_FAILED if EXIT_FAILED in codes else max(codes)


def _seed_summary(snapshot: Snapshot, runs_dir: Path, api: Api) -> SeedSummary:
    job = snapshot.job
    summary = summarise(
        job,
        snapshot.records,
        api.client.cost(job.job_id),
        run_dir=finished_folder((runs_dir / job.job_id).absolute()),
    )
    return SeedSummary(
        **dict(summary),
        seed=job.spec.seed,
        training_return=recent_return([r.result for r in snapshot.records if r.result]),
    )


def _next(seeds: Sequence[SeedSummary], place: Place) -> list[tuple[str, str]]:
    """Return next commands for runs of several seeds, with their purpose."""
    best = max(seeds, key=_reached)
    film = place.command("evaluate", best.job_id, "--video")
    compared = place.command("runs", "compare", *(each.job_id for each in seeds))
    return [
        (film, "see the agent of the best seed"),
        *([(compared, "compare the seeds")] if len(seeds) > 1 else []),
    ]


def _reached(summary: SeedSummary) -> float:
    known = (summary.final_return, summary.training_return)
    return next((value for value in known if value is not None), -math.inf)


def _picture(summary: SeedsSummary, console: Console) -> Path | None:
    """Plot the seeds together, if their folders are here."""
    folders = [Path(each.run_dir) for each in summary.seeds if each.run_dir is not None]
    if len(folders) < len(summary.seeds):
        return None
    return made("picture", partial(_draw, folders), console)


def _draw(folders: Sequence[Path]) -> Path:
    from nitro.runs.drawing.compared_picture import (
        draw_together,  # matplotlib takes a while to load
    )

    return draw_together([read_run(folder) for folder in folders])
