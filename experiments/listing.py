"""Which experiments there are, and which have results: read without what running them needs."""

from pathlib import Path

from rich.table import Table
from rich.text import Text

from experiments.catalogue import NAMES, STUDIES
from experiments.store import read_summary


def experiments_table(out: Path) -> Table:
    """List every experiment with the results it has.

    Raises:
        CommandError: Results are damaged, or cannot be read.
    """
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("name", "what", "results"):
        table.add_column(heading, no_wrap=heading == "name")
    for name, about in NAMES.items():
        table.add_row(name, Text(about), Text(_results(name, out)))
    return table


def _results(name: str, out: Path) -> str:
    if name in STUDIES:
        return "made" if (out / f"{name}.json").is_file() else "–"
    summary = read_summary(out / name / f"{name}.json", name)
    return "–" if summary is None else summary.made
