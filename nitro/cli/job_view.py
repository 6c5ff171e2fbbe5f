"""Jobs as tables."""

from collections.abc import Sequence
from datetime import datetime
from typing import get_args

from pydantic import TypeAdapter, ValidationError
from rich.table import Table

from nitro.errors import CommandError
from nitro.runs.summary import cost_text, duration, number, progress_text, wait_text
from nitro.spec.scaling_option import scaling_name
from nitro.tables import columns_table, facts_table
from shared.contracts.billing import JobCost
from shared.contracts.jobs import Job, JobStatus
from shared.contracts.learner_kind import why_learner
from shared.contracts.stop_rule import StopRule
from shared.contracts.views.jobs import JobSummary


def check_status(status: str | None) -> JobStatus | None:
    """Return the API's status of this name.

    Raises:
        CommandError: There is no such status.
    """
    try:
        return TypeAdapter(JobStatus | None).validate_python(status)
    except ValidationError:
        known = ", ".join(get_args(JobStatus))
        raise CommandError(f"--status: must be one of {known}, got {status!r}") from None


def jobs_table(jobs: Sequence[JobSummary], *, width: int) -> Table:
    """One line per job; a narrow terminal drops the last columns."""
    columns: dict[str, Sequence[str]] = {
        "job": [job.job_id for job in jobs],
        "status": [job.status for job in jobs],
        "round": [
            progress_text(job.round, job.max_rounds, job.env_steps, job.ending_steps)
            for job in jobs
        ],
        "return": [number(job.last_return) for job in jobs],
        "USD": [f"{job.spent_usd:.4f}" for job in jobs],
        "date": [_time(job.created_at, "%m-%d %H:%M") for job in jobs],
        "env_id": [job.env_id for job in jobs],
    }
    if any(job.name or job.tags for job in jobs):
        columns["name"] = [" ".join(filter(None, (job.name, *job.tags))) for job in jobs]
    # The last columns go first: a job's name contains most of its environment's.
    return columns_table(columns, numbers=("round", "return", "USD"), uncut=5, width=width)


def job_table(job: Job, cost: JobCost | None) -> Table:
    """The details of one job; its bill may be unknown."""
    spec, progress = job.spec, job.progress
    facts = [
        ("job", job.job_id),
        *((("name", spec.name),) if spec.name else ()),
        *((("tags", ", ".join(spec.tags)),) if spec.tags else ()),
        ("environment", spec.env_id),
        ("status", job.status + (f" ({job.stop_reason})" if job.stop_reason else "")),
        *((("waits for", wait_text(job.waits_for)),) if job.waits_for else ()),
        *(("warning", text) for text in job.warnings),
        ("created", _time(job.created_at)),
        ("started", _time(job.started_at)),
        ("finished", _time(job.finished_at)),
        ("round", spec.stop.of_rounds(progress.rounds)),
        ("environment steps", f"{progress.env_steps:,}" + _of_steps(spec.stop)),
        ("return", f"last {number(progress.last_return)}   best {number(progress.best_return)}"),
        *_bill(job, cost),
        ("algorithm", f"{spec.algorithm} ({spec.preset}), seed {spec.seed}"),
        ("actors", f"{spec.actors.min} to {spec.actors.max}, scaling {scaling_name(spec.scaling)}"),
        ("warm environments", spec.warm or "provisioned"),
        ("learner", _learner(job)),
        *(("", f"scaling {scaling_name(s.scaling)} from round {s.round} on") for s in job.switches),
        *((("error", job.error),) if job.error else ()),
    ]
    return facts_table(facts)


def _of_steps(stop: StopRule) -> str:
    return "" if stop.max_env_steps is None else f" of {stop.max_env_steps:,}"


def _learner(job: Job) -> str:
    asked = job.spec.learner
    if asked == "auto" and job.environment is None:
        return "auto: decided when the environment is known"
    return f"{job.learner} ({why_learner(asked, job.learner)})"


def _bill(job: Job, cost: JobCost | None) -> list[tuple[str, str]]:
    stop = job.spec.stop
    if cost is None:
        return [("cost", cost_text(job.spent_usd, stop))]
    return [
        ("cost", _spent(cost, stop)),
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
        *(
            (
                "on one server (projected)",
                f"{duration(server.wall_s)}, {server.total_usd:.4f} USD "
                f"({server.learner_instance}, boot included)",
            )
            for server in (cost.best_server,)
            if server is not None
        ),
    ]


def _spent(cost: JobCost, stop: StopRule) -> str:
    """Show the bill, the sum of its items, and separately the reserved money."""
    billed = cost_text(cost.settled_usd, stop)
    if not cost.reserved_usd or not stop.is_capped:
        return billed
    return f"{billed} ({cost.reserved_usd:.4f} more reserved for the round in flight)"


def _time(unix_s: float | None, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    if unix_s is None:
        return "–"
    return datetime.fromtimestamp(unix_s).astimezone().strftime(form)
