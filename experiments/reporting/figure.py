"""Draws a summary as PNG, from its JSON alone."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.reporting.findings import Panel, Series, Summary, Surface

_COLUMNS, _COLUMNS_OF_PAIRS = 3, 4
"""Panels side by side."""
_X_INTERVALS = 6
"""Of an axis of numbers at most: "0.0125" and its neighbours would run into each other."""
_WIDTH, _HEIGHT = 4.6, 3.4
"""Inches per panel."""
_COLOURS = (
    "#d9762b", "#2b6cb0", "#4a9d5b", "#8a5fb0", "#b03a48", "#7a7a7a", "#1f9aa0", "#c2a21c",
)  # fmt: skip


def draw(summary: Summary, path: Path) -> Path:
    """Write a summary's picture beside `path`, as .png, and return its path."""
    count = max(1, len(summary.panels))
    columns = min(count, num_columns([panel.title for panel in summary.panels]))
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(_WIDTH * columns, _HEIGHT * rows + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False)
    axes = [panel for row in grid for panel in row]
    colours = series_colours(summary)
    for panel, on in zip(summary.panels, axes, strict=False):
        if isinstance(panel, Surface):
            _surface(figure, on, panel)
        else:
            _panel(on, panel, colours)
    for unused in axes[len(summary.panels) :]:
        unused.set_axis_off()
    quick = " — QUICK RUN, MEANINGLESS" if summary.quick else ""
    figure.suptitle(f"{summary.title} (paper: {summary.paper}); seeds: {summary.seeds}{quick}")
    picture = path.with_suffix(".png")
    figure.savefig(picture, dpi=110)
    return picture


def num_columns(titles: Sequence[str]) -> int:
    """Return how many panels stand side by side, so that two of one title share a row.

    >>> num_columns(["Hopper", "Hopper", "Walker", "Walker"]), num_columns(["a", "b"])
    (4, 3)
    """
    pairs = len(titles) % 2 == 0 and titles[::2] == titles[1::2] and len({*titles[::2]}) > 1
    return _COLUMNS_OF_PAIRS if pairs else _COLUMNS


def series_colours(summary: Summary) -> dict[str, str]:
    """Return every label's colour, the same in all panels; where colours run out, some share."""
    found: dict[str, str] = {}
    for panel in summary.panels:
        labels = [] if isinstance(panel, Surface) else [series.label for series in panel.series]
        taken = {found.get(label) for label in labels}
        used = Counter(found.values())
        free = sorted((c for c in _COLOURS if c not in taken), key=used.__getitem__) or _COLOURS
        new = (label for label in labels if label not in found)
        found |= {label: free[place % len(free)] for place, label in enumerate(new)}
    return found


def _panel(on: Axes, panel: Panel, colours: dict[str, str]) -> None:
    for place, series in enumerate(panel.series):
        colour = colours[series.label]
        if panel.kind in ("bar", "point"):
            _beside(on, series, place, len(panel.series), colour, kind=panel.kind)
        else:
            _along(on, series, colour, kind=panel.kind)
    if panel.kind == "point":
        on.set_yscale("log")
        on.margins(y=0.25)  # room for the legend
    if panel.kind in ("line", "step"):
        on.locator_params(axis="x", nbins=_X_INTERVALS, steps=(1, 2, 5, 10))
    if panel.categories:
        on.set_xticks(range(len(panel.categories)), panel.categories, fontsize=8)
        # Long names end at their tick: centred on it they would run into each other.
        on.tick_params(axis="x", rotation=20)
        for label in on.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")
    on.set_title(panel.title, fontsize=10)
    on.set_xlabel(panel.x_label)
    on.set_ylabel(panel.y_label)
    if panel.series:
        on.legend(frameon=False, fontsize=7, ncols=2 if panel.kind == "point" else 1)


def _along(on: Axes, series: Series, colour: str, *, kind: str) -> None:
    drawstyle = "steps-mid" if kind == "step" else "default"
    on.plot(series.x, series.y, color=colour, label=series.label, drawstyle=drawstyle)
    if series.low is not None and series.high is not None:
        on.fill_between(series.x, series.low, series.high, color=colour, alpha=0.15, lw=0)


def _beside(on: Axes, series: Series, place: int, count: int, colour: str, *, kind: str) -> None:
    width = 0.8 / count
    x = [value + (place - (count - 1) / 2) * width for value in series.x]
    dark = "#222222"
    if kind == "bar":
        on.bar(x, series.y, width, color=colour, label=series.label)
    else:
        on.plot(x, series.y, "o", color=colour, markersize=4, label=series.label)
        dark = colour
    if series.low is not None and series.high is not None:
        below = np.maximum(0.0, np.subtract(series.y, series.low))
        above = np.maximum(0.0, np.subtract(series.high, series.y))
        on.errorbar(x, series.y, yerr=(below, above), fmt="none", ecolor=dark, lw=0.8)


def _surface(figure: Figure, on: Axes, surface: Surface) -> None:
    colours = on.pcolormesh(
        surface.axis,
        surface.axis,
        surface.z,
        cmap="coolwarm",
        shading="auto",
        rasterized=True,  # as a picture within the SVG: one path per point is a megabyte
    )
    figure.colorbar(colours, ax=on, label=surface.z_label)
    on.set_title(surface.title, fontsize=10)
    on.set_xlabel(surface.x_label)
    on.set_ylabel(surface.y_label)
