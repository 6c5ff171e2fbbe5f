"""The live view of a sweep: a table redrawn in place, or a line per ended job."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from nitro.runs.summary import number
from nitro.sweeps.rows import Row
from nitro.tables import columns_table, live_display
from shared.contracts.jobs import Job

_NUMBERS = frozenset({"seed", "round", "return", "USD"})
_LATEST = 5
"""Number of ended rows shown below the open ones."""


class SweepView:
    """Shows rows on a console."""

    def __init__(self, console: Console, live: Live | None, *, budget_usd: float | None) -> None:
        self._console = console
        self._live = live
        self._budget_usd = budget_usd
        self._told: dict[str, str] = {}

    def show(self, rows: Sequence[Row], jobs: Mapping[str, Job]) -> None:
        """Show the status of the rows."""
        if self._live is not None:
            width = self._console.width
            self._live.update(live_table(rows, jobs, budget_usd=self._budget_usd, width=width))
            return
        for row in rows:
            if row.status in ("waiting", "open") or self._told.get(row.key) == row.status:
                continue
            self._told[row.key] = row.status
            self.note("  ".join(_cells(row, None).values()) + (f"  {row.reason}"))

    def note(self, text: str) -> None:
        """Print a line."""
        self._console.print(Text(text.rstrip()), soft_wrap=True)


@contextmanager
def sweep_view(console: Console, *, budget_usd: float | None) -> Iterator[SweepView]:
    """Yield a view that fits the console."""
    with live_display(console) as live:
        yield SweepView(console, live, budget_usd=budget_usd)


def live_table(
    rows: Sequence[Row], jobs: Mapping[str, Job], *, budget_usd: float | None, width: int
) -> RenderableType:
    """Return a table of the open rows, the last ended rows, and the number per status."""
    ended = [row for row in rows if row.status not in ("waiting", "open")]
    shown = [*(row for row in rows if row.status == "open"), *ended[-_LATEST:]]
    counts = Counter(row.status for row in rows)
    spent = sum(row.spent_usd for row in rows) + sum(job.spent_usd for job in jobs.values())
    of = "" if budget_usd is None else f" of {budget_usd:g}"
    summary = ", ".join(f"{count} {status}" for status, count in counts.items())
    line = Text(f"{len(rows)} jobs: {summary}; {spent:.4f}{of} USD as on AWS")
    if not shown:
        return line
    cells = [_cells(row, jobs.get(row.key)) for row in shown]
    columns = {name: [each[name] for each in cells] for name in cells[0]}
    return Group(columns_table(columns, numbers=_NUMBERS, uncut=5, width=width), line)


def _cells(row: Row, job: Job | None) -> dict[str, str]:
    outcome = row.outcome
    rounds = job.progress.rounds if job else (outcome.rounds if outcome else 0)
    latest = job.progress.last_return if job else (outcome.final_return if outcome else None)
    spent = job.spent_usd if job else row.spent_usd
    return {
        "environment": row.env_id,
        "setting": row.setting,
        "seed": str(row.seed),
        "status": job.status if job and row.status == "open" else row.status,
        # A row that ends by its steps has no fixed number of rounds.
        "round": row.spec.stop.of_rounds(rounds) if row.end_steps is None else f"{rounds}",
        "return": number(latest),
        "USD": f"{spent:.4f}",
        "job": row.job_id or "–",
    }
