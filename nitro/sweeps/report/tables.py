"""A sweep's results as text, markdown, LaTeX and CSV."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from typing import Literal

from nitro.runs.summary import duration
from nitro.sweeps.report.results import Group, Results, Tried

Format = Literal["text", "markdown", "latex", "csv"]
_HEADINGS = ("environment", "setting", "IQM [95 %]", "seeds", "best", "steps", "time", "USD")
_LATEX = re.compile(r"[&%$#_{}]")
_TRIALS = ("trial", "IQM", "went to", "USD")
FEW_SEEDS = 10
"""With fewer seeds, intervals are wide."""


def told(found: Results, form: Format) -> str:
    """Format results."""
    return _FORMS[form](found)


def text(found: Results) -> str:
    """Format results for a terminal."""
    cells = [list(_HEADINGS), *([*_cells(group)] for group in found.groups)]
    lines = [*_aligned(cells), ""] if found.groups else []
    if found.trials:
        lines += [*_aligned([list(_TRIALS), *map(_trial, found.trials)]), ""]
    if found.overall:
        lines += [
            *_aligned([["all environments", "score", "better than the first"], *_all(found)]),
            "",
        ]
    return "\n".join([*lines, *notes(found)])


def markdown(found: Results) -> str:
    """Format results as Markdown."""
    lines = _markdown(_HEADINGS, [_cells(group) for group in found.groups])
    if found.overall:
        first = found.overall[0].setting
        heads = ("all environments", "score, IQM [95 %]", f"P(better than {first})")
        lines += ["", *_markdown(heads, _all(found))]
    if found.trials:
        lines += ["", *_markdown(_TRIALS, [*map(_trial, found.trials)])]
    return "\n".join([*lines, "", *notes(found)])


def latex(found: Results) -> str:
    """Format results for a paper: a row per environment, a column per setting; needs booktabs."""
    settings = [*dict.fromkeys(group.setting for group in found.groups)]
    environments = [*dict.fromkeys(group.env_id for group in found.groups)]
    known = {(group.env_id, group.setting): group for group in found.groups}
    lines = [
        r"\begin{tabular}{l" + "r" * len(settings) + "}",
        r"\toprule",
        " & ".join(["", *map(_escaped, settings)]) + r" \\",
        r"\midrule",
    ]
    for env_id in environments:
        row = [known.get((env_id, setting)) for setting in settings]
        best = max((g.final_return.value for g in row if g and g.final_return), default=None)
        lines.append(" & ".join([_escaped(env_id), *(_paper(g, best) for g in row)]) + r" \\")
    if found.overall:
        scores = {each.setting: each.score.told(2) for each in found.overall}
        cells = [scores[setting] for setting in settings]
        lines += [r"\midrule", " & ".join(["all (score)", *cells]) + r" \\"]
    lines += [r"\bottomrule", r"\end{tabular}", *(f"% {note}" for note in notes(found))]
    return "\n".join(lines)


def as_csv(found: Results) -> str:
    """Format a line per environment and setting, with all digits."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ("environment", "setting", "seeds", "jobs", "iqm", "low", "high", "best", "env_steps")
        + ("wall_s", "usd")
    )
    for group in found.groups:
        value = group.final_return
        measured = ("", "", "") if value is None else (value.value, value.low, value.high)
        writer.writerow(
            (group.env_id, group.setting, group.seeds, group.jobs, *measured)
            + ("" if group.best_return is None else group.best_return,)
            + (group.env_steps, group.wall_s, group.spent_usd)
        )
    return out.getvalue().rstrip("\n")


def notes(found: Results) -> list[str]:
    """Return notes on the numbers, one line each."""
    cost = f"{found.spent_usd:.4f} USD as projected to AWS"
    if found.budget_usd is not None:
        cost += f", of {found.budget_usd:g}"
    lines = [f"Interquartile means of last evaluations, 95 % bootstrap intervals; {cost}."]
    fewest = min((group.seeds for group in found.groups), default=FEW_SEEDS)
    if 0 < fewest < FEW_SEEDS:
        lines.append(f"A claim needs about {FEW_SEEDS} seeds, not {fewest}.")
    for key, status, why in found.unfinished:
        lines.append(f"{key}: {status}, {why}" if why else f"{key}: {status}")
    return lines


def _cells(group: Group) -> tuple[str, ...]:
    of = f" of {group.jobs}" if group.seeds < group.jobs else ""
    return (
        group.env_id,
        group.setting,
        "–" if group.final_return is None else group.final_return.told(),
        f"{group.seeds}{of}",
        "–" if group.best_return is None else f"{group.best_return:.1f}",
        f"{group.env_steps:,}",
        duration(group.wall_s),
        f"{group.spent_usd:.4f}",
    )


def _trial(tried: Tried) -> list[str]:
    return [
        tried.setting,
        "–" if tried.final_return is None else f"{tried.final_return:.1f}",
        "the end" if tried.mark is None else f"{tried.mark:,.0f} steps",
        f"{tried.spent_usd:.4f}",
    ]


def _all(found: Results) -> list[list[str]]:
    return [
        [
            each.setting,
            each.score.told(2),
            "–" if each.improvement is None else each.improvement.told(2),
        ]
        for each in found.overall
    ]


def _aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [headings, ["---"] * len(headings), *rows]
    return [f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines]


def _paper(group: Group | None, best: float | None) -> str:
    if group is None or group.final_return is None:
        return "--"
    found = group.final_return
    value = f"{found.value:.0f}"
    value = rf"\textbf{{{value}}}" if found.value == best else value
    return f"{value} [{found.low:.0f}, {found.high:.0f}]"


def _escaped(text: str) -> str:
    return _LATEX.sub(lambda found: "\\" + found[0], text)


_FORMS: dict[Format, Callable[[Results], str]] = {
    "text": text,
    "markdown": markdown,
    "latex": latex,
    "csv": as_csv,
}
