"""The findings of an experiment: panels to draw, tables to print, claims and their verdicts.

A summary is one JSON file. Picture and report are made of it alone.
"""

from collections.abc import Sequence
from typing import Literal, Protocol, Self

from pydantic import FiniteFloat

from benchmarks.environment import Environment
from experiments.grid import LeftOut
from shared.contracts.message import Count, Message

Value = str | int | FiniteFloat | None


class Estimated(Protocol):
    """A value and the ends of its interval."""

    @property
    def value(self) -> float:
        """The value."""

    @property
    def low(self) -> float:
        """The lower end."""

    @property
    def high(self) -> float:
        """The upper end."""


class Series(Message):
    """Points of one kind."""

    label: str
    x: tuple[FiniteFloat, ...]
    y: tuple[FiniteFloat, ...]
    low: tuple[FiniteFloat, ...] | None = None
    high: tuple[FiniteFloat, ...] | None = None

    @classmethod
    def of(cls, label: str, x: Sequence[float], points: Sequence[Estimated]) -> Self:
        """Return values with their intervals."""
        return cls(
            label=label,
            x=tuple(x),
            y=tuple(point.value for point in points),
            low=tuple(point.low for point in points),
            high=tuple(point.high for point in points),
        )


class Panel(Message):
    """One diagram."""

    title: str
    x_label: str
    y_label: str
    kind: Literal["line", "step", "bar", "point"] = "line"
    """`bar`, `point`: x is the place in `categories`; points have a logarithmic y axis, for numbers
    far apart."""
    series: tuple[Series, ...]
    categories: tuple[str, ...] = ()


class Surface(Message):
    """One height per point of a square grid."""

    title: str
    x_label: str
    y_label: str
    z_label: str
    axis: tuple[FiniteFloat, ...]
    z: tuple[tuple[FiniteFloat, ...], ...]
    """Rows along y."""


class Table(Message):
    """Numbers in rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


class Claim(Message):
    """A claim of the paper, the measurement here, and whether it supports the claim."""

    paper: str
    ours: str
    verdict: str


class Findings(Message):
    """An experiment's findings from its outcomes."""

    panels: tuple[Panel | Surface, ...]
    tables: tuple[Table, ...] = ()
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes for reading the numbers."""


class Summary(Findings):
    """An experiment's result, with what is needed to judge and to repeat it."""

    name: str
    title: str
    paper: str
    """Figures or section of the paper."""
    command: str
    quick: bool
    seeds: Count
    """Different ones, of the runs made."""
    cells: Count
    """Runs made."""
    left_out: tuple[LeftOut, ...]
    environment: Environment
    """Where the summary was made."""
    measured_on: tuple[str, ...]
    """Machine and commit of the cells."""

    @property
    def made(self) -> str:
        """How many runs there are, in words."""
        return f"{_counted(self.cells, 'run')}, {_counted(self.seeds, 'seed')}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
