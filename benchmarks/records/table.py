"""Results as tables for people."""

from rich.table import Table

from benchmarks.records.result import Result, Row, Series

_HEADINGS = ("what", "ours", "peer", "ratio min / median / max", "target", "met")
_BOUND = {"at_least": "≥", "at_most": "≤"}


def result_table(result: Result) -> Table:
    """Return one table with a line per claim."""
    table = Table(title=result.title, title_justify="left", caption_justify="left")
    for heading in _HEADINGS:
        table.add_column(heading, overflow="fold")
    for row in result.rows:
        table.add_row(*cells(row))
    return table


def cells(row: Row) -> tuple[str, str, str, str, str, str]:
    """Return a row's cells, in the order of the headings."""
    return (
        row.what,
        _series(row.ours),
        "-" if row.peer is None else _series(row.peer),
        _ratios(row),
        _target(row),
        "-" if row.met is None else "yes" if row.met else "NO",
    )


def _series(series: Series) -> str:
    statistic = "" if series.statistic == "median" else f"{series.statistic} "
    return f"{series.name}: {statistic}{_number(series.value)} {series.unit}"


def _ratios(row: Row) -> str:
    if row.ratios is None:
        return "-"
    spread = (row.ratios.min, row.ratios.median, row.ratios.max)
    return " / ".join(_number(ratio) for ratio in spread)


def _target(row: Row) -> str:
    if row.target is None:
        return "-"
    unit = "x" if row.target.of == "ratio" else f" {row.ours.unit}"
    return f"{_BOUND[row.target.bound]} {_number(row.target.value)}{unit}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
