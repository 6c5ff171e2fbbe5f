"""Jobs as tables."""

from collections.abc import Sequence
from datetime import datetime
from typing import get_args

from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from nitro.errors import CommandError
from nitro.summary import duration, number
from shared.billing import JobCost
from shared.jobs import Job, JobStatus

_UNCUT = ("job", "status", "round", "return", "USD")
"""Columns that nobody can do without; the job's name tells most of its environment's."""
_NARROWEST = 8
_STATUSES: tuple[JobStatus, ...] = get_args(JobStatus)


def check_status(status: str | None) -> JobStatus | None:
    """Return a status as the API knows it.

    Raises:
        CommandError: It is none.
    """
    if status is None:
        return None
    for known in _STATUSES:
        if known == status:
            return known
    raise CommandError(f"--status: must be one of {', '.join(_STATUSES)}, got {status!r}")


def jobs_table(jobs: Sequence[Job]) -> Table:
    """One line per job; where it is too narrow for that, only the last two are folded."""
    rows = [
        (
            job.job_id,
            job.status,
            f"{job.progress.rounds}/{job.spec.stop.max_rounds}",
            number(job.progress.last_return),
            f"{job.spent_usd:.4f}",
        )
        for job in jobs
    ]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading, cells in zip(_UNCUT, zip(*rows, strict=True), strict=True):
        # The width is said, too: without it every column of a table that is too wide is cut.
        widest = max(len(heading), *(len(cell) for cell in cells))
        justify: JustifyMethod = "left" if heading in ("job", "status") else "right"
        table.add_column(heading, no_wrap=True, min_width=widest, justify=justify)
    table.add_column("date", min_width=len("01-31"))
    table.add_column("env_id", min_width=_NARROWEST, overflow="fold")
    for job, cells in zip(jobs, rows, strict=True):
        table.add_row(*cells, _time(job.created_at, "%m-%d %H:%M"), Text(job.spec.env_id))
    return table


def job_table(job: Job, cost: JobCost) -> Table:
    """Everything worth knowing about one job."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    spec, progress = job.spec, job.progress
    rows = [
        ("job", job.job_id),
        ("environment", spec.env_id),
        ("status", job.status + (f" ({job.stop_reason})" if job.stop_reason else "")),
        ("created", _time(job.created_at)),
        ("started", _time(job.started_at)),
        ("finished", _time(job.finished_at)),
        ("round", f"{progress.rounds} of {spec.stop.max_rounds}"),
        ("environment steps", f"{progress.env_steps:,}"),
        ("return", f"last {number(progress.last_return)}   best {number(progress.best_return)}"),
        ("cost", _spent(cost, spec.stop.budget_usd)),
        *((f"  {item.replace('_', ' ')}", f"{usd:.4f}") for item, usd in cost.by_item.items()),
        ("prices", cost.price_table),
        ("on AWS (projected)", duration(cost.projected_wall_s)),
        *(
            (
                "on servers (projected)",
                f"{duration(servers.wall_s)}, {servers.total_usd:.4f} USD "
                f"({servers.learner_instance} + {servers.actor_instance})",
            )
            for servers in cost.serverful
        ),
        ("algorithm", f"{spec.algorithm} ({spec.preset}), seed {spec.seed}"),
        ("actors", f"{spec.actors.min} to {spec.actors.max}, scaling {spec.scaling.policy}"),
        *(("", f"scaling {s.scaling.policy} from round {s.round} on") for s in job.switches),
        *((("error", job.error),) if job.error else ()),
    ]
    for name, value in rows:
        table.add_row(name, Text(value))
    return table


def _spent(cost: JobCost, budget_usd: float) -> str:
    """Tell what is billed, the sum of the items, apart from what is only set aside."""
    billed = f"{cost.total_usd - cost.reserved_usd:.4f} USD of {budget_usd:g}"
    if not cost.reserved_usd:
        return billed
    return f"{billed} ({cost.reserved_usd:.4f} more reserved for the round in flight)"


def _time(unix_s: float | None, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    if unix_s is None:
        return "–"
    return datetime.fromtimestamp(unix_s).astimezone().strftime(form)
