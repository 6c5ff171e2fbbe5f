"""Style and output of our pictures."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from nitro.errors import CommandError

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

_ENDINGS = (".png", ".pdf", ".svg")
"""Suffixes of pictures; matplotlib has more, some only with further programs."""
_STYLE: "dict[RcKeyType, object]" = {
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e4e6ea",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.edgecolor": "#555b66",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}


@contextmanager
def new_figure(target: Path, *, width: float, height: float) -> Iterator[Figure]:
    """Yield an empty figure; write it when the block ends.

    Args:
        target: The file; its suffix determines the format.
        width: In inches.
        height: In inches.

    Raises:
        CommandError: The suffix is not supported, or the file cannot be written.
    """
    if target.suffix.lower() not in _ENDINGS:
        raise CommandError(f"--output: {target} has to end in one of {', '.join(_ENDINGS)}")
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(target, dpi=140)
        except OSError as error:
            raise CommandError(f"cannot write {target}: {error.strerror or error}") from error
