"""All of a job's rounds and events, page by page, as tables."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.table import Table

from nitro.client.client import NitroClient
from nitro.runs.summary import number
from nitro.tables import columns_table
from shared.contracts.views.events import EventPage, JobEvent

Row = Mapping[str, float | int | None]
_WIDE = 120


def every_row(client: NitroClient, job_id: str, *, after: int = -1) -> list[dict[str, object]]:
    """Return a job's rounds after round `after`, one row each with all columns."""
    rows: list[dict[str, object]] = []
    while True:
        page = client.curves(job_id, after=after)
        for index, number_ in enumerate(page.columns.get("round", ())):
            row: dict[str, object] = {name: of[index] for name, of in page.columns.items()}
            row["stats"] = {name: of[index] for name, of in page.stats.items()}
            row["cost_usd"] = sum(of[index] for of in page.cost.values())
            rows.append(row)
            after = int(number_ or 0)
        if not page.more:
            return rows


def every_event(client: NitroClient, job_id: str) -> EventPage:
    """Return all stored events of a job."""
    page = client.events(job_id)
    events = [*page.events]
    while events and events[-1].number < page.last:
        newer = client.events(job_id, after=events[-1].number)
        if not newer.events:
            break
        events += newer.events
    return page.model_copy(update={"events": tuple(events)})


def rounds_table(rows: Sequence[Mapping[str, object]]) -> Table:
    """Format rounds for people."""

    def column(name: str, form: str = "{}") -> list[str]:
        return [_cell(row.get(name), form) for row in rows]

    columns: dict[str, Sequence[str]] = {
        "round": column("round"),
        "actors": column("actors"),
        "evaluation": column("eval_return", "return"),
        "training": column("train_return", "return"),
        "score": column("score", "{:.2f}"),
        "steps": column("env_steps", "{:,}"),
        "seconds": column("total_s", "{:.1f}"),
        "USD so far": column("spent_usd", "{:.4f}"),
        "lost": column("actors_lost"),
    }
    return columns_table(columns, numbers=columns.keys(), uncut=4, width=_WIDE)


def events_table(events: Sequence[JobEvent]) -> Table:
    """Format events for people."""
    columns = {
        "time": [datetime.fromtimestamp(e.at).strftime("%m-%d %H:%M:%S") for e in events],
        "round": ["" if e.round is None else str(e.round) for e in events],
        "what": [e.kind.replace("_", " ") for e in events],
        "": [" ".join(e.text.split()) for e in events],
    }
    return columns_table(columns, numbers=("round",), uncut=4, width=_WIDE)


def _cell(value: object, form: str) -> str:
    if not isinstance(value, int | float):
        return "–"
    return number(value) if form == "return" else form.format(value)
