"""A check's finding, its severity, and advice."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.table import Table

Verdict = Literal["ok", "warning", "wrong"]

_COLOURS: dict[Verdict, str] = {"ok": "green", "warning": "yellow", "wrong": "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of one check."""

    name: str
    verdict: Verdict
    """`warning`: it works with limits; `wrong`: it cannot work."""
    found: str
    advice: str = ""
    """Advice; empty if all is well."""


def ok(name: str, found: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(name=name, verdict="ok", found=found)


def warning(name: str, found: str, advice: str) -> Finding:
    """Return a warning."""
    return Finding(name=name, verdict="warning", found=found, advice=advice)


def wrong(name: str, found: str, advice: str) -> Finding:
    """Return a failure."""
    return Finding(name=name, verdict="wrong", found=found, advice=advice)


def any_wrong(findings: Sequence[Finding]) -> bool:
    """Return whether any finding is a failure."""
    return any(finding.verdict == "wrong" for finding in findings)


def findings_table(findings: Sequence[Finding], *, title: str) -> "Table":
    """Return findings for a person."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left")
    for heading in ("check", "", "found", "what to do"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        table.add_row(
            finding.name,
            Text(finding.verdict, style=_COLOURS[finding.verdict]),
            Text(finding.found),
            Text(finding.advice),
        )
    return table
