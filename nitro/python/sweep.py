"""`nitro.sweep`: many jobs in one call, and their results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, to_jsonable_python
from rich.console import Console

from nitro.errors import CommandError
from nitro.python.pictures import Picture
from nitro.python.run import Run, read
from nitro.runs.reading import find_run
from nitro.sweeps.folder import Asked, SweepFolder
from nitro.sweeps.place import require_possible
from nitro.sweeps.report.results import Results
from nitro.sweeps.report.tables import Format, told
from nitro.sweeps.spec import sweep_spec
from nitro.sweeps.sweeping import PICTURE, begin, run_sweep, summed_up, write_results
from nitro.sweeps.view import sweep_view

if TYPE_CHECKING:
    import pandas


class Sweep:
    """The results of a sweep, as returned by `nitro.sweep` and `nitro.load_sweep`.

    Attributes:
        name: Its name for `nitro sweep show`.
        folder: Folder of its tables and its picture.
    """

    def __init__(self, folder: SweepFolder) -> None:
        self._folder = folder
        self.name = folder.name
        self.folder = folder.path

    def __repr__(self) -> str:
        found = self.results
        done = sum(group.seeds for group in found.groups)
        return f"<Sweep {self.name}: {done} jobs counted, {found.spent_usd:.4f} USD as on AWS>"

    @property
    def results(self) -> Results:
        """The results: `groups`, `overall`, `trials`, `spent_usd` and `unfinished`."""
        return summed_up(self._folder)

    @property
    def runs(self) -> list[Run]:
        """The runs of this machine, in the order of the rows."""
        ids = [row.job_id for row in self._folder.rows() if row.job_id is not None]
        return [read(find_run(job_id, self._folder.runs_dir)) for job_id in ids]

    def table(self) -> "pandas.DataFrame":
        """Return a row for each environment and setting: seeds, interquartile mean, interval, USD.

        Raises:
            CommandError: pandas is not installed; `text()` needs nothing.
        """
        try:
            import pandas
        except ImportError as error:
            raise CommandError("table needs pandas: pip install pandas; or use text()") from error
        rows = []
        for group in self.results.groups:
            fields = group.model_dump(exclude={"final_return"})
            found = group.final_return
            ends = {} if found is None else found.model_dump()
            rows.append({**fields, **{name: ends.get(name) for name in ("value", "low", "high")}})
        return pandas.DataFrame(rows).rename(columns={"value": "iqm"})

    def text(self, form: Format = "text") -> str:
        """Return the table as `text`, `markdown`, `latex` or `csv`."""
        return told(self.results, form)

    def plot(self, path: Path | str | None = None) -> Picture:
        """Plot returns by steps, with a band for each setting; a notebook shows the picture.

        Args:
            path: A .png, .pdf or .svg to write; default: `sweep.png` in the sweep's folder.

        Raises:
            CommandError: No job has a return yet, or the file cannot be written.
        """
        from nitro.sweeps.report.picture import draw_sweep  # matplotlib takes a while to load

        target = self.folder / PICTURE if path is None else Path(path)
        return Picture(draw_sweep(self._folder.rows(), self.results, target))


def sweep(
    environments: str | Sequence[str] | None = None,
    *,
    seeds: int | str | Sequence[int] | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    search: Mapping[str, Any] | None = None,
    total_steps: float | None = None,
    budget_usd: float | None = None,
    name: str | None = None,
    spec: str | Path | None = None,
    parallel: int | str = "auto",
    api_url: str | None = None,
    runs_dir: str | Path = "runs",
    environment_packages: Sequence[str] = (),
    progress: bool | None = None,
    **fields: Any,
) -> Sweep:
    """Train every environment with every setting and every seed; return the results.

    Repeating the call resumes the sweep. Ctrl-C ends it at once, and loses only the current rounds.

    Args:
        environments: One or several names of registered environments.
        seeds: A number N for seeds 1 to N, a text such as `1-5`, or a list; default: 5.
        vary: Values by field of the job: `{"preset": ["standard", "paper"]}`. All combinations are
            trained.
        settings: Fields by a setting's name: `{"ppo": {"algorithm": "ppo"}}`.
        search: Search for the best values instead of a grid: `fields`, `trials`, `rungs` and more,
            as in a file.
        total_steps: Environment steps of each job.
        budget_usd: The most that all jobs together may cost, as projected to AWS.
        name: Name of the sweep; default: derived from the rest.
        spec: A YAML or JSON file of a sweep; arguments win.
        parallel: Jobs at once; `auto` matches this machine's cores.
        api_url: REST API of a deployment; it needs a budget.
        runs_dir: Folder of the local runs.
        environment_packages: Modules that register your own environments.
        progress: Whether to report each finished job; by default on a terminal.
        **fields: Fields that all jobs have, such as `preset="paper"`.

    Raises:
        CommandError: A field is wrong, or the system or the API is unavailable. A failed job is a
            row of the sweep, and raises nothing.
    """
    given = {
        "environments": environments,
        "seeds": seeds,
        "vary": vary,
        "settings": settings,
        "search": search,
        "total_steps": total_steps,
        "budget_usd": budget_usd,
        "name": name,
        "job": fields or None,
    }
    asked = Asked(
        spec=sweep_spec(None if spec is None else Path(spec), _plain(given)),
        environment_packages=tuple(environment_packages),
    )
    require_possible(asked, Path(runs_dir), api_url=api_url)
    folder = begin(Path(runs_dir), asked)
    console = Console(stderr=True)
    wanted = console.is_terminal if progress is None else progress
    shown = console if wanted else Console(quiet=True)
    with sweep_view(shown, budget_usd=asked.spec.budget_usd) as view:
        run_sweep(
            folder,
            parallel=str(parallel),
            api_url=api_url,
            view=view,
            asked_to_stop=lambda: False,
            pause=sleep,
        )
    write_results(folder)
    return Sweep(folder)


def load_sweep(name: str, *, runs_dir: str | Path = "runs") -> Sweep:
    """Return a sweep of this machine, finished or not.

    Raises:
        CommandError: There is none of that name.
    """
    folder = SweepFolder(Path(runs_dir), name)
    folder.asked()
    return Sweep(folder)


def _plain(given: Mapping[str, object]) -> dict[str, JsonValue]:
    try:
        plain: dict[str, JsonValue] = to_jsonable_python(
            {name: value for name, value in given.items() if value is not None}
        )
    except PydanticSerializationError as error:
        raise CommandError(f"{error}; use plain numbers and texts") from error
    return plain
