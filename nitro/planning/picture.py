"""The picture of a plan: time against dollars, both on logarithmic axes."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from nitro.planning.report import Plan
from nitro.planning.ways import Way
from nitro.runs.drawing.figures import new_figure

_NAMES = {
    "cpu": "serverless, CPU learner",
    "gpu": "serverless, GPU learner",
    "functions": "serverless, learner functions",
}


def draw_plan(plan: Plan, path: Path) -> Path:
    """Plot a plan and return the picture's path.

    Raises:
        CommandError: The file cannot be written.
    """
    with new_figure(path, width=7.5, height=5) as figure:
        panel = figure.subplots()
        for learner, label in _NAMES.items():
            _draw(panel, label, [w for w in _of(plan, "serverless") if w.learner == learner])
        _draw(panel, "one server", _of(plan, "server"))
        _draw(panel, "own cores of a CPU learner", _of(plan, "own"))
        for way in _of(plan, "here"):  # which costs nothing, so it is not on the logarithmic axis
            label = f"{way.name}, at no cost"
            panel.axvline(way.wall_s / 60.0, color="#555b66", linestyle="--", label=label)
        front = [way for way in (plan.ways[i] for i in plan.front) if way.usd]
        panel.scatter(
            [way.wall_s / 60.0 for way in front],
            [way.usd for way in front],
            s=130,
            facecolors="none",
            edgecolors="#c0392b",
            label="Pareto front",
        )
        panel.set_xscale("log")
        panel.set_yscale("log")
        for axis in (panel.xaxis, panel.yaxis):  # plain numbers, no powers of ten
            axis.set_minor_locator(LogLocator(subs=(2, 5)))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter("{x:g}")
        panel.set_xlabel("minutes (projected)")
        panel.set_ylabel("cost (USD, projected)")
        figure.legend(loc="outside lower center", ncols=3)
        figure.suptitle(f"{plan.workload.env_id}, {plan.workload.total_steps:,} steps", fontsize=11)
    return path


def _of(plan: Plan, place: str) -> list[Way]:
    return [way for way in plan.ways if way.place == place]


def _draw(panel: Axes, label: str, ways: Sequence[Way]) -> None:
    if not ways:
        return
    x, y = [way.wall_s / 60.0 for way in ways], [way.usd for way in ways]
    panel.plot(x, y, "o-", linewidth=1.2, markersize=5, label=label)
    for way, place in zip(ways, zip(x, y, strict=True), strict=True):
        size = way.num_actors if way.cores is None else way.cores
        panel.annotate(f"{size:,}", place, textcoords="offset points", xytext=(5, 5), fontsize=8)
