"""The course of a sweep, shared by the command line and `nitro.sweep`."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from nitro.client.follow import stop_unfinished
from nitro.errors import CommandError
from nitro.hints import Place
from nitro.local.access import Api
from nitro.local.own_environments import keep_packages
from nitro.sweeps.folder import Asked, SweepFolder
from nitro.sweeps.grid import expand
from nitro.sweeps.place import is_here, open_place, parallel_jobs
from nitro.sweeps.report.results import Results, results
from nitro.sweeps.rows import Row
from nitro.sweeps.runner import Plan, Runner, View
from nitro.sweeps.search.plan import SearchPlan
from nitro.sweeps.search.sampling import require_optuna
from nitro.sweeps.spec import SweepSpec

PICTURE = "sweep.png"


def begin(runs_dir: Path, asked: Asked) -> SweepFolder:
    """Write a new sweep, or find an identical sweep that was started before.

    Raises:
        CommandError: A job is invalid, or another sweep has its name.
    """
    folder = SweepFolder(runs_dir, asked.spec.known_name)
    if folder.exists():
        before = folder.asked().spec
        if _same(before) != _same(asked.spec):
            resume = Place(runs_dir=runs_dir).command("sweep", "resume", folder.name)
            raise CommandError(
                f"name: another sweep is called {folder.name}; choose another name, or resume that "
                f"one: {resume}"
            )
        if asked.spec.budget_usd not in (None, before.budget_usd):
            folder.raise_budget(asked.spec.budget_usd or 0.0)
        return folder
    if asked.spec.search is None:
        folder.begin(asked, expand(asked.spec, runs_dir=runs_dir))
        return folder
    if asked.spec.search.sampler == "tpe":
        require_optuna()
    folder.begin(asked, [])
    return folder


def _same(spec: SweepSpec) -> SweepSpec:
    return spec.model_copy(update={"budget_usd": None, "name": spec.known_name})


def run_sweep(
    folder: SweepFolder,
    *,
    parallel: str,
    api_url: str | None,
    view: View,
    asked_to_stop: Callable[[], bool],
    pause: Callable[[float], object],
    ready: Callable[[], object] = lambda: None,
) -> list[Row]:
    """Run a sweep to its end, or until a stop is requested; return its rows.

    Args:
        folder: The sweep's folder.
        parallel: `auto` or a number of concurrent jobs.
        api_url: The named API.
        view: Shows the rows.
        asked_to_stop: Whether the user requested a stop.
        pause: Waits for at most this many seconds.
        ready: Called once the API answers.

    Raises:
        CommandError: The system or the API is unavailable, or another command runs the sweep.
    """
    with folder.held():
        asked, rows = folder.asked(), folder.rows()
        plan = plan_of(asked.spec, folder)
        rows = plan(rows)
        folder.write(rows)
        if {row.status for row in rows} <= {"finished", "paused"}:
            return rows
        here = is_here(folder, api_url)
        if not here and asked.spec.budget_usd is None:
            raise CommandError("--budget-usd: an API costs money: give a cap for all jobs")
        at_once = parallel_jobs(parallel, rows=most_rows(asked.spec, rows), here=here)
        view.note(f"{at_once.jobs} at once ({at_once.reason})")
        with open_place(
            folder,
            rows,
            parallel=at_once.jobs,
            api_url=api_url,
            environment_packages=asked.environment_packages,
            tell=view.note,
        ) as api:
            ready()
            runner = Runner(
                api.client,
                folder,
                places=at_once.jobs,
                budget_usd=asked.spec.budget_usd,
                plan=plan,
                view=view,
                begun=partial(_keep, api, folder),
                check=api.check,
                asked=lambda: asked_to_stop() or folder.asked_to_stop(),
                pause=pause,
            )
            return runner.run()


def plan_of(spec: SweepSpec, folder: SweepFolder) -> Plan:
    """Return the function that adds and promotes rows; a grid has no changes."""
    return (lambda rows: rows) if spec.search is None else SearchPlan(spec, spec.search, folder)


def most_rows(spec: SweepSpec, rows: Sequence[Row]) -> int:
    """Return the largest number of jobs that the sweep can have open at once."""
    search = spec.search
    if search is None:
        return len(rows)
    return max(search.batch_size * len(spec.seeds), search.finalists * search.final_seeds)


def stop_jobs(folder: SweepFolder, api: Api) -> int:
    """Stop the jobs of a sweep that no command runs; return their number."""
    ids = [row.job_id for row in folder.rows() if row.status == "open" and row.job_id]
    for job_id in ids:
        stop_unfinished(api.client, job_id)
    return len(ids)


def summed_up(folder: SweepFolder) -> Results:
    """Return a sweep's results so far."""
    return results(folder.name, folder.rows(), budget_usd=folder.asked().spec.budget_usd)


def write_results(folder: SweepFolder) -> Path | None:
    """Write table and picture into the sweep's folder; return the picture; None without returns."""
    from nitro.sweeps.report.picture import draw_sweep  # matplotlib takes a while to load
    from nitro.sweeps.report.tables import told

    found = summed_up(folder)
    for ending, text in (
        ("md", told(found, "markdown")),
        ("tex", told(found, "latex")),
        ("csv", told(found, "csv")),
    ):
        (folder.path / f"table.{ending}").write_text(f"{text}\n", encoding="utf-8")
    try:
        return draw_sweep(folder.rows(), found, folder.path / PICTURE)
    except CommandError:
        return None


def _keep(api: Api, folder: SweepFolder, job_id: str) -> None:
    if api.system is not None:
        keep_packages(folder.path / job_id, api.environment_packages)
