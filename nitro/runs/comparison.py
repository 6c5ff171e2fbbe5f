"""`nitro runs compare`: runs side by side, also at equal steps and at equal dollars."""

from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from rich.table import Table
from rich.text import Text

from nitro.runs.configuration import DifferentField, different_fields
from nitro.runs.curves import Curve, Measure, common_measure, curve
from nitro.runs.reading import Run, read_run
from nitro.runs.report import RunReport, report_of, shown
from nitro.runs.summary import duration, number


class EqualTerms(BaseModel):
    """Runs compared at equal steps, time or dollars; the fields are keys of `--json`."""

    model_config = ConfigDict(frozen=True)

    at: float
    """Environment steps or dollars: the most that every run has reached."""
    measure: Measure
    """Source of the returns: evaluations, or the last 100 training episodes."""
    returns: list[float]
    """Return of each run, in order."""


class Comparison(BaseModel):
    """Runs side by side; the fields are the keys of `--json`."""

    model_config = ConfigDict(frozen=True)

    runs: list[RunReport]
    """The output of `nitro runs show --json` for each."""
    different: list[DifferentField]
    """Fields in which the jobs differ."""
    equal_steps: EqualTerms | None
    """None if returns are not comparable: different environments, or no return yet."""
    equal_usd: EqualTerms | None
    """None also if a run has no bill."""


def compare_runs(folders: Sequence[Path]) -> Comparison:
    """Compare runs.

    Raises:
        CommandError: A file of a folder is damaged; names it.
    """
    runs = [read_run(folder) for folder in folders]
    return Comparison(
        runs=[report_of(run) for run in runs],
        different=different_fields([run.job for run in runs]),
        equal_steps=_equal(runs, lambda each: each.env_steps[-1], Curve.at_steps),
        equal_usd=_equal(runs, lambda each: each.cost_usd[-1], Curve.at_usd),
    )


def _equal(
    runs: Sequence[Run], most: Callable[[Curve], float], at: Callable[[Curve, float], float]
) -> EqualTerms | None:
    if len({run.job.spec.env_id for run in runs}) > 1:
        return None
    measure = common_measure(runs)
    curves = [curve(run, measure) for run in runs]
    if not all(len(each.returns) and most(each) for each in curves):
        return None
    shared = min(map(most, curves))
    return EqualTerms(at=shared, measure=measure, returns=[at(each, shared) for each in curves])


def comparison_table(comparison: Comparison) -> Table:
    """Format a comparison for people: one column per run."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("", style="bold", overflow="fold")
    for report in comparison.runs:
        table.add_column(Text(report.name), overflow="fold")
    for each in comparison.different:
        table.add_row(each.field, *(Text(shown(value)) for value in each.values))
    table.add_section()
    for name, tell in _ROWS.items():
        table.add_row(name, *(Text(tell(report)) for report in comparison.runs))
    for equal, form in (
        (comparison.equal_steps, "{:,.0f} steps"),
        (comparison.equal_usd, "{:.4f} USD"),
    ):
        if equal is not None:
            heading = f"{equal.measure} return at {form.format(equal.at)}"
            table.add_row(heading, *(Text(number(value)) for value in equal.returns))
    return table


_ROWS: dict[str, Callable[[RunReport], str]] = {
    "state": lambda report: report.state,
    "rounds": lambda report: str(report.rounds),
    "environment steps": lambda report: f"{report.env_steps:,}",
    "time in rounds": lambda report: duration(report.rounds_s),
    "time on AWS (projected)": lambda report: (
        "–" if report.projected_wall_s is None else duration(report.projected_wall_s)
    ),
    "cost (projected)": lambda report: f"{report.cost_usd:.4f} USD",
    "final return": lambda report: number(report.final_return),
    "best return": lambda report: number(report.best_return),
    "training return": lambda report: number(report.training_return),
}
