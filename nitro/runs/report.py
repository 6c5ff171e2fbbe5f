"""`nitro runs show`: the contents of a run's folder as one table."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from rich.table import Table

from nitro.runs.configuration import ChangedField, changed_fields
from nitro.runs.curves import curve, recent_return
from nitro.runs.listing import RunRow, run_row
from nitro.runs.reading import Run, read_cost, read_run
from nitro.runs.summary import duration, number
from nitro.tables import facts_table
from shared.contracts.rounds import RoundTiming

_PARTS = [name for name in RoundTiming.model_fields if name != "total_s"]
_PART_NAMES = {
    "plan_s": "publish and plan",
    "collect_s": "wait for actors",
    "update_s": "update",
    "curvature_s": "curvature",
    "evaluate_s": "wait for evaluation",
    "checkpoint_s": "record and checkpoint",
}
_SIZES = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))


class EvaluationPoint(BaseModel):
    """One evaluation, with the steps and dollars so far; the fields are keys of `--json`."""

    model_config = ConfigDict(frozen=True)

    env_steps: int
    cost_usd: float
    mean_return: float


class RunFile(BaseModel):
    """A file of the run's folder, or a whole sub-folder; the fields are keys of `--json`."""

    model_config = ConfigDict(frozen=True)

    name: str
    files: int
    bytes: int


class RunReport(RunRow):
    """One run; the fields are the keys of `--json`, in addition to those of `nitro runs list`."""

    stop_reason: str | None
    error: str | None
    changed: list[ChangedField]
    """Fields that differ from the defaults of `nitro train`."""
    training_return: float | None
    """Mean of the last 100 training episodes."""
    training_episodes: int
    evaluations: list[EvaluationPoint]
    rounds_s: float
    """Seconds of all rounds on this machine, each counted once."""
    time_s: dict[str, float]
    """Seconds by part of a round; the small rest of `rounds_s` belongs to no part."""
    projected_wall_s: float | None
    """Projected seconds on AWS; None without a complete bill."""
    cost_by_item: dict[str, float]
    contents: list[RunFile]


def run_report(folder: Path) -> RunReport:
    """Report on a run.

    Raises:
        CommandError: A file of the folder is damaged; names it.
    """
    return report_of(read_run(folder))


def report_of(run: Run) -> RunReport:
    """Report on a loaded run.

    Raises:
        CommandError: A file of the folder is damaged; names it.
    """
    cost = read_cost(run.folder)
    results = [line.result for line in run.rounds if line.result]
    evaluated = curve(run, "evaluation")
    items: dict[str, float] = {}
    for line in run.ledger:
        items[line.item] = items.get(line.item, 0.0) + line.amount_usd
    return RunReport(
        **run_row(run.folder, run.job).model_dump(),
        stop_reason=run.job.stop_reason,
        error=run.job.error,
        changed=changed_fields(run.job),
        training_return=recent_return(results),
        training_episodes=sum(len(result.episode_returns) for result in results),
        evaluations=[
            EvaluationPoint(env_steps=int(steps), cost_usd=usd, mean_return=mean)
            for steps, usd, mean in zip(
                evaluated.env_steps, evaluated.cost_usd, evaluated.returns, strict=True
            )
        ],
        rounds_s=sum(result.timing.total_s for result in results),
        time_s={part: sum(getattr(r.timing, part) for r in results) for part in _PARTS},
        projected_wall_s=None if cost is None else cost.projected_wall_s,
        cost_by_item=items,
        contents=list(_contents(run.folder)),
    )


def report_table(report: RunReport) -> Table:
    """Format a run for people."""
    by_rounds = report.ending_steps is None
    steps_per_s = report.env_steps / report.rounds_s if report.rounds_s else 0.0
    facts = [
        ("run", report.name),
        ("state", report.state + (f" ({report.stop_reason})" if report.stop_reason else "")),
        *((("error", report.error),) if report.error else ()),
        ("environment", report.env_id),
        ("algorithm", f"{report.algorithm} ({report.preset}), seed {report.seed}"),
        *_changed(report.changed),
        ("return", f"final {number(report.final_return)}   best {number(report.best_return)}"),
        ("training return", _training(report)),
        ("evaluations", _evaluations(report.evaluations)),
        ("rounds", f"{report.rounds}" + (f" of {report.max_rounds}" if by_rounds else "")),
        (
            "environment steps",
            f"{report.env_steps:,}"
            + ("" if by_rounds else f" of {report.ending_steps:,}")
            + f"   {steps_per_s:,.0f} steps/s",
        ),
        ("time in rounds", duration(report.rounds_s)),
        *(
            (f"  {_PART_NAMES[part]}", _share(seconds, report.rounds_s))
            for part, seconds in report.time_s.items()
        ),
        *_on_aws(report.projected_wall_s),
        ("cost (projected)", f"{report.cost_usd:.4f} USD"),
        *(
            (f"  {item.replace('_', ' ')}", f"{usd:.4f}")
            for item, usd in report.cost_by_item.items()
        ),
        ("folder", report.folder),
        *((f"  {each.name}", _size(each)) for each in report.contents),
    ]
    return facts_table(facts)


def _changed(fields: Sequence[ChangedField]) -> Iterator[tuple[str, str]]:
    heading = "not the default"
    for each in fields:
        default = "" if each.default is None else f"   (default: {shown(each.default)})"
        yield heading, f"{each.field} = {shown(each.value)}{default}"
        heading = ""


def shown(value: object) -> str:
    """Format a field's value as for `--set`."""
    return value if isinstance(value, str) else json.dumps(value)


def _training(report: RunReport) -> str:
    if report.training_return is None:
        return "no episode ended"
    recent = min(100, report.training_episodes)
    return f"{report.training_return:.1f}, mean of the last {recent} episodes"


def _evaluations(points: Sequence[EvaluationPoint]) -> str:
    if not points:
        return "none"
    best = max(points, key=lambda point: point.mean_return)
    return f"{len(points)}, the best after {best.env_steps:,} steps and {best.cost_usd:.4f} USD"


def _on_aws(wall_s: float | None) -> list[tuple[str, str]]:
    return [] if wall_s is None else [("time on AWS (projected)", duration(wall_s))]


def _share(seconds: float, whole_s: float) -> str:
    share = f" ({100 * seconds / whole_s:.0f} %)" if whole_s else ""
    return f"{duration(seconds)}{share}"


def _contents(folder: Path) -> Iterator[RunFile]:
    for path in sorted(folder.iterdir()):
        files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        if files:
            size = sum(each.stat().st_size for each in files)
            name = path.name if path.is_file() else f"{path.name}/"
            yield RunFile(name=name, files=len(files), bytes=size)


def _size(content: RunFile) -> str:
    scale, unit = next(((s, u) for s, u in _SIZES if content.bytes >= s), (1, "bytes"))
    size = f"{content.bytes / scale:.3g} {unit}" if scale > 1 else f"{content.bytes} bytes"
    return f"{content.files} files, {size}" if content.name.endswith("/") else size
