"""The picture of a sweep: a panel of curves per environment, and the final returns below."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

from nitro.errors import CommandError
from nitro.runs.drawing.figures import new_figure
from nitro.spec.seeds import seed_count
from nitro.sweeps.report.results import Results
from nitro.sweeps.report.statistics import interquartile_band
from nitro.sweeps.rows import Row

_POINTS = 100
"""Points along a band."""
_ACROSS = 4
"""Panels per row."""


def draw_sweep(rows: Sequence[Row], found: Results, target: Path) -> Path:
    """Plot returns by steps with a band per setting, and return the picture's path.

    Args:
        rows: The sweep's rows.
        found: Their results.
        target: A .png, .pdf or .svg.

    Raises:
        CommandError: No row has a return, or the file cannot be written.
    """
    environments = [*dict.fromkeys(row.env_id for row in rows)]
    settings = [*dict.fromkeys(row.setting for row in rows if not _without_curve(row))]
    if not settings:
        raise CommandError(f"{found.name}: no job has a return yet, so there is nothing to draw")
    across = min(_ACROSS, len(environments))
    down = -(-len(environments) // across)
    colours = mpl.color_sequences["tab10"]
    with new_figure(target, width=4.2 * across + 1.5, height=3.2 * down + 0.6) as figure:
        panels = figure.subplots(down, across, squeeze=False).flat
        for panel, env_id in zip(panels, environments, strict=False):
            panel.set_title(env_id, fontsize=10)
            panel.set_xlabel("environment steps")
            panel.set_ylabel("return per episode")
            for index, setting in enumerate(settings):
                chosen = [r for r in rows if (r.env_id, r.setting) == (env_id, setting)]
                _draw(panel, chosen, setting, colours[index % len(colours)])
        for panel in [*panels]:
            panel.set_axis_off()
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        figure.suptitle(f"{found.name}: interquartile mean, 95 % interval", fontsize=11)
    return target


def _without_curve(row: Row) -> bool:
    return row.outcome is None or not row.outcome.curve


def _draw(panel: Axes, rows: Sequence[Row], setting: str, colour: object) -> None:
    curves = [row.outcome.curve for row in rows if row.outcome is not None and row.outcome.curve]
    if not curves:
        return
    # Only as far as every seed went: the mean would jump where a seed ends.
    begin = max(curve[0].env_steps for curve in curves)
    end = min(curve[-1].env_steps for curve in curves)
    grid = np.linspace(begin, end, _POINTS)
    values = np.stack(
        [
            np.interp(grid, [p.env_steps for p in curve], [p.mean_return for p in curve])
            for curve in curves
        ]
    )
    mean, low, high = interquartile_band(values)
    panel.fill_between(grid, low, high, color=colour, alpha=0.18, linewidth=0)
    panel.plot(
        grid, mean, color=colour, linewidth=1.8, label=f"{setting} ({seed_count(len(curves))})"
    )
