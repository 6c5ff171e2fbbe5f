"""The pages of results: tables and claims, written between markers from the experiments' JSON.

    <!-- begin policies --> ... <!-- end policies -->

`results.md` has the overview, `results/NAME.md` the experiment NAME. Text outside of the markers
is left as it is, so that people can write there.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from experiments.catalogue import NAMES, load
from experiments.reporting.findings import Summary, Table, Value
from experiments.store import Store, read_summary, write_whole
from nitro.errors import CommandError

_NOT_RUN = "Not run yet: `nitro experiment run {name}`."


def write_report(docs: Path, out: Path) -> int:
    """Fill the marked sections of all pages, and return how many experiments had results.

    Raises:
        CommandError: There are no results, or a page cannot be read or lacks its markers. All
            pages are left as they were.
    """
    found = 0
    pages = {}
    for name in NAMES:
        page = docs / "results" / f"{name}.md"
        body, made = section(name, out, page)
        found += made
        pages[page] = _filled(page, name, body)
    overview = docs / "results.md"
    pages[overview] = _filled(overview, "overview", _overview(out))
    if not found:
        why = "holds no results" if out.is_dir() else "is no folder"
        raise CommandError(f"--out {out}: {why}; {docs} is left as it was")
    for page, text in pages.items():
        write_whole(page, text)
    return found


def _filled(page: Path, name: str, body: str) -> str:
    """Return a page's text with a new body between the markers of a name."""
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--docs: {page} cannot be read: {error.strerror}") from error
    before, begin, rest = text.partition(f"<!-- begin {name} -->\n")
    _, end, after = rest.partition(f"<!-- end {name} -->")
    if not (begin and end):
        raise CommandError(f"--docs: {page} has no <!-- begin {name} --> ... <!-- end {name} -->")
    return f"{before}{begin}{body}\n{end}{after}"


def section(name: str, out: Path, document: Path) -> tuple[str, int]:
    """Return an experiment's section of a document, and 1 if it has results."""
    found = _found(name, out)
    parts = [] if name in found else [_NOT_RUN.format(name=name)]
    for made, summary in found.items():
        picture = _link(out / made / f"{made}.png", document)
        title = [] if made == name else [f"### {summary.title}"]
        parts += [*title, *_parts(summary, picture)]
    return "\n\n".join(parts), int(bool(found))


def _found(name: str, out: Path) -> dict[str, Summary]:
    """Return the summaries of an experiment, and of the same with other horizons, by folder."""
    found = {}
    for folder in (out / name, *sorted(out.glob(f"{name}-*"))):
        command = "nitro experiment run " + folder.name.replace("-", " --horizon ", 1)
        summary = read_summary(folder / f"{folder.name}.json", command)
        if summary is not None:
            found[folder.name] = summary
    return found


def _overview(out: Path) -> str:
    rows: list[tuple[Value, ...]] = []
    for name, about in NAMES.items():
        summary = Store(out, load(name), quick=False).summary()
        rows.append((_linked(name), about, "not run yet" if summary is None else summary.made))
    return table(Table(title="", columns=("name", "what", "runs made so far"), rows=tuple(rows)))


def _linked(name: str) -> str:
    return f"[`{name}`](results/{name}.md)"


def _parts(summary: Summary, picture: str) -> Iterator[str]:
    commits: dict[str, list[str]] = {}
    for place in summary.measured_on:
        machine, _, commit = place.partition(", commit ")
        commits.setdefault(machine, []).append(commit)
    where = "; ".join(f"{machine}, commit {', '.join(of)}" for machine, of in commits.items())
    yield (
        f"Paper: {summary.paper}. Made by `{summary.command}`: {summary.made}. Measured on {where}."
    )
    yield f"![{summary.title}]({picture})"
    if summary.claims:
        rows = tuple((claim.paper, claim.ours, claim.verdict) for claim in summary.claims)
        yield table(Table(title="", columns=("the paper says", "here", "does it hold"), rows=rows))
    for entry in summary.tables:
        yield f"**{entry.title}**\n\n{table(entry)}"
    yield from summary.notes
    if summary.left_out:
        lines = [f"- {left.what}: {left.why}" for left in summary.left_out]
        yield "\n".join(("Left out:", "", *lines))


def table(entry: Table) -> str:
    """Return a table as Markdown."""
    lines = [_line(entry.columns), _line(["---"] * len(entry.columns))]
    return "\n".join((*lines, *(_line(row) for row in entry.rows)))


def _line(cells: tuple[Value, ...] | tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(value: Value) -> str:
    if value is None:
        return "–"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|")


def _link(path: Path, document: Path) -> str:
    """Return a path as a document links to it: from its own folder."""
    return Path(os.path.relpath(path.resolve(), document.resolve().parent)).as_posix()
