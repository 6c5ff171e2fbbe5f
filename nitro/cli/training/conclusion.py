"""The end of `nitro train`: the job's outcome, its picture and film, and next commands."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

from rich.console import Console

from nitro.client.follow import Snapshot
from nitro.errors import EXIT_FAILED, EXIT_INTERRUPTED, CommandError
from nitro.foreign_output import foreign_code
from nitro.hints import Place
from nitro.local.access import Api
from nitro.runs.finished import finished_folder
from nitro.runs.reading import read_run
from nitro.runs.summary import Summary, going_on, next_commands, summarise, summary_table
from nitro.tables import print_text
from shared.contracts.jobs import Job


def conclude(
    snapshot: Snapshot, api: Api, *, as_json: bool, console: Console, stdout: TextIO
) -> int:
    """Show a finished job's outcome; return the exit code.

    Ctrl-C skips the picture or the film in progress.
    """
    job, place = snapshot.job, api.place
    folder = (place.runs_dir / job.job_id).absolute()
    run_dir = finished_folder(folder)
    summary = summarise(job, snapshot.records, api.client.cost(job.job_id), run_dir=run_dir)
    console.print()
    with console.status("drawing the picture of the run and the film of the agent"):
        picture = None if run_dir is None else made("picture", partial(_draw, run_dir), console)
        # A film takes seconds, and JSON output does not show it.
        wanted = not as_json and job.status != "failed" and job.stop_reason != "user"
        filmed = run_dir if wanted else None
        film = None if filmed is None else made("film", partial(_film, filmed), console)
    expected = folder if api.system is not None else None
    logs = None if api.system is None else api.system.logs
    console.print(
        summary_table(
            summary, error=job.error, picture=picture, film=film, expected=expected, logs=logs
        )
    )
    _tell_next(job, summary, place, console)
    if as_json:
        stdout.write(summary.model_dump_json() + "\n")
        stdout.flush()
    return exit_code(summary)


def exit_code(summary: Summary) -> int:
    """Return 0 for a finished job, 1 for a failed job and 130 for a stopped job."""
    if summary.status == "failed":
        return EXIT_FAILED
    return EXIT_INTERRUPTED if summary.stop_reason == "user" else 0


def made(what: str, make: Callable[[], Path], console: Console) -> Path | None:
    """Make a file at a job's end and return its path; report a failure."""
    try:
        return make()
    except CommandError as error:
        why = str(error)
    except ImportError as error:
        why = f"{error}: pip install -e '.[local]' in a clone"
    except KeyboardInterrupt:  # the job has ended: only this file is skipped
        why = "interrupted"
    print_text(console, f"no {what}: {why}")
    return None


def _draw(run_dir: Path) -> Path:
    from nitro.runs.drawing.picture import draw  # matplotlib takes a while to load

    return draw(read_run(run_dir))


def _film(run_dir: Path) -> Path:
    from nitro.runs.evaluate import film_run  # Gymnasium takes a while to load

    with foreign_code():
        return film_run(run_dir)


def _tell_next(job: Job, summary: Summary, place: Place, console: Console) -> None:
    if text := how_to_go_on(job, wall_s=summary.wall_s, place=place):
        print_text(console, text)
    else:
        tell_commands(next_commands(job, place), console)


def how_to_go_on(job: Job, *, wall_s: float, place: Place) -> str | None:
    """Return the command that continues a job; None for a finished job."""
    command = going_on(job, wall_s=wall_s, place=place)
    if command is None:
        return None
    when = "once the error is fixed, " if job.fails_again else ""
    return f"{when}continue with: {command}"


def tell_commands(commands: Sequence[tuple[str, str]], console: Console) -> None:
    """Show next commands and their purpose."""
    width = max(len(command) for command, _ in commands)
    lines = ["", "next commands:", *(f"  {c:<{width}}  # {why}" for c, why in commands)]
    print_text(console, "\n".join(lines))
