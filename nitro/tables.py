"""Tables for people."""

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text


def facts_table(facts: Iterable[tuple[str, str]]) -> Table:
    """Return a table of names and what is to be said of each."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")  # a path must never be cut short
    for name, value in facts:
        table.add_row(name, Text(value))
    return table
