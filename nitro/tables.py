"""Text and tables for people."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console, JustifyMethod
from rich.live import Live
from rich.table import Table
from rich.text import Text

_GAP = 2
_CONTROL = re.compile(
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069]"
)
"""Characters that command a terminal, or turn the order of a line's characters round."""


class Output(Console):
    """A console that raises `BrokenPipeError` when nobody reads; `Console` ends the process."""

    def on_broken_pipe(self) -> None:
        """Leave it to the command, which says so."""
        raise BrokenPipeError


def plain(line: str) -> str:
    """Return a line with nothing in it that a terminal obeys, whoever wrote it; tabs stay."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", line)


def print_text(console: Console, text: str) -> None:
    """Print a text as it is: no line is wrapped, and nothing in it is markup."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)


@contextmanager
def live_display(console: Console) -> Iterator[Live | None]:
    """Yield a display that is redrawn in place on a terminal; None elsewhere."""
    if not console.is_terminal:
        yield None
        return
    with Live(Text("starting ..."), console=console, refresh_per_second=4) as live:
        yield live


def facts_table(facts: Iterable[tuple[str, str]]) -> Table:
    """Return a table of names and what is to be said of each."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")  # a path must never be cut short
    for name, value in facts:
        table.add_row(name, Text("\n".join(map(plain, value.split("\n")))))
    return table


def columns_table(
    columns: Mapping[str, Sequence[str]], *, numbers: Container[str], uncut: int, width: int
) -> Table:
    """Return a table of columns; where they do not all fit, the last ones are left out.

    Args:
        columns: Cells by heading, the column least needed last.
        numbers: Headings of columns whose cells stand to the right.
        uncut: How many of the first columns nobody can do without.
        width: Characters of a line.
    """
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
    taken = 0
    for index, (heading, cells) in enumerate(columns.items()):
        widest = max(len(heading), *(len(cell) for cell in cells))
        taken += widest + _GAP * bool(taken)
        if taken > width and index >= uncut:
            break
        justify: JustifyMethod = "right" if heading in numbers else "left"
        # The width is said, too: without it every column of a table that is too wide is cut.
        table.add_column(heading, no_wrap=True, min_width=widest, justify=justify)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*(Text(plain(cell)) for cell in cells[: len(table.columns)]))
    return table
