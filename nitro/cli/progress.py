"""Showing a job's progress: a live panel on a terminal, one line per round elsewhere."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nitro.client.follow import Snapshot
from nitro.runs.summary import cost_text, duration, number, wait_text
from nitro.spec.total_steps import planned_steps
from nitro.tables import live_display, plain
from shared.contracts.jobs import Job, JobStatus, Wait
from shared.contracts.rounds import RoundPlan, RoundRecord

_SPARKS = "▁▂▃▄▅▆▇█"
_SPARK_ROUNDS = 32
_STATUS: dict[JobStatus, str] = {
    "checking": "checking, waiting for an actor to describe the environment",
    "queued": "queued, waiting for the learner",
}


@contextmanager
def progress_view(console: Console) -> Iterator["LiveView | LineView"]:
    """Yield the view that suits the console."""
    with live_display(console) as live:
        yield LineView(console) if live is None else LiveView(live)


class LineView:
    """One plain line per finished round, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: int | None = None
        """Number of rounds that have a line, or were done before; None at first."""
        self._status = ""
        self._troubled_rounds = 0
        self._wait: Wait | None = None

    def show(self, snapshot: Snapshot) -> None:
        """Print newly finished rounds, a change of status, and a new reason to wait.

        Of the rounds that are done at first sight only the newest has a line.
        """
        done = tuple(record for record in snapshot.records if record.result)
        if self._shown is None:
            self._shown = max(0, len(done) - 1)
        for count in range(self._shown + 1, len(done) + 1):
            self.note(_round_line(Snapshot(snapshot.job, done[:count])))
        self._shown = len(done)
        troubled = sum(1 for record in snapshot.records if record.trouble.latest)
        if troubled > self._troubled_rounds:
            self._troubled_rounds = troubled
            self.note(trouble(snapshot.records))
        if snapshot.job.status != self._status:
            self._status = snapshot.job.status
            self.note(f"{snapshot.job.job_id}: {self._status}")
            for text in snapshot.job.warnings if self._status == "queued" else ():
                self.note(f"warning: {text}")
        if snapshot.job.waits_for != self._wait:
            self._wait = snapshot.job.waits_for
            if self._wait:
                self.note(f"{snapshot.job.job_id}: waits for {wait_text(self._wait)}")

    def note(self, text: str) -> None:
        """Print a line."""
        self._console.print(Text(plain(text)), soft_wrap=True)


def _round_line(upto: Snapshot) -> str:
    """Describe the last round of a snapshot whose rounds are all done."""
    record = upto.records[-1]
    return (
        f"round {upto.job.spec.stop.of_rounds(record.plan.round + 1)}"
        f"  evaluation {_evaluated(record)}  training {number(upto.training_return)}"
        f"{_best(record, upto.job)}"
        f"  actors {_granted(record.plan)}  score {_score(record.plan.boosting_score)}"
        f"  steps {sum(each.result.env_steps for each in upto.records if each.result):,}"
        f"  {_rate(upto.steps_per_s)}  {_cost(record, upto.job)}  left {_left(upto.eta_s)}"
    )


def _best(record: RoundRecord, job: Job) -> str:
    """Return the best return of a search's round, whose episodes are of different policies."""
    returns = record.result.episode_returns if record.result and job.spec.searches else ()
    return f" (best {number(max(returns))})" if returns else ""


def _left(eta_s: float | None) -> str:
    return "known after round 1" if eta_s is None else f"about {duration(eta_s)}"


def _cost(record: RoundRecord, job: Job) -> str:
    """Show a round's cost, or its upper bound while the bill is not final."""
    if not job.spec.stop.is_capped:
        return f"would cost {record.cost_usd:.5f} USD on AWS"
    if not record.reserved_usd:
        return f"{record.cost_usd:.5f} USD"
    return f"at most {record.cost_usd + record.reserved_usd:.5f} USD"


def _evaluated(record: RoundRecord) -> str:
    """Show an evaluation's mean, and the number of episodes if some are missing."""
    evaluation, asked = record.result and record.result.evaluation, record.plan.num_evaluations
    if not evaluation or not evaluation.returns:
        return number(None)
    came = len(evaluation.returns)
    missing = f" ({came} of {asked} episodes)" if came < asked else ""
    mean = number(fmean(evaluation.returns))
    return f"{mean} of policy {evaluation.policy_version}{missing}"


def _whose(snapshot: Snapshot) -> str:
    """Show which policy the newest evaluation belongs to: a round's, or the final one."""
    for record in reversed(snapshot.records):
        evaluation = record.result and record.result.evaluation
        if evaluation:
            of_a_round = evaluation.mean_return == snapshot.job.progress.last_return
            return (
                f" of policy {evaluation.policy_version}" if of_a_round else " of the last policy"
            )
    return ""


def _granted(plan: RoundPlan) -> str:
    """Show a round's actors, and the requested number if budget or concurrency cut it."""
    asked = f" of {plan.requested} asked" if plan.requested > plan.num_actors else ""
    return f"{plan.num_actors}{asked}"


class LiveView:
    """A panel that is redrawn in place."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, snapshot: Snapshot) -> None:
        """Redraw the panel."""
        self._live.update(panel(snapshot))

    def note(self, text: str) -> None:
        """Print a line above the panel."""
        self._live.console.print(Text(plain(text)))


def panel(snapshot: Snapshot) -> RenderableType:
    """Return the panel for a job's current state."""
    job, plan = snapshot.job, snapshot.plan
    most = job.spec.stop.max_env_steps
    bar = ProgressBar(total=job.spec.stop.max_rounds, completed=snapshot.finished_rounds)
    if most is not None:
        bar = ProgressBar(total=most, completed=min(most, job.progress.env_steps))
    table = Table.grid(padding=(0, 2))
    for _ in range(2):
        table.add_column(style="bold", no_wrap=True)
        table.add_column(no_wrap=True, min_width=22)
    actors = f"{plan.num_actors}" if plan else "–"
    if plan and plan.requested != plan.num_actors:
        actors += f" (asked {plan.requested})"
    total = planned_steps(job.spec)
    rows = [
        ("round", job.spec.stop.of_rounds(snapshot.finished_rounds)),
        ("time left", _left(snapshot.eta_s)),
        (
            "evaluation",
            f"{number(job.progress.last_return)}{_whose(snapshot)}  "
            f"best {number(job.progress.best_return)}",
        ),
        ("training", number(snapshot.training_return)),
        ("actors", actors),
        ("score", _score(plan.boosting_score if plan else None)),
        ("steps", f"{job.progress.env_steps:,}" + (f" of {total:,}" if total else "")),
        ("speed", _rate(snapshot.steps_per_s)),
        ("cost", cost_text(job.spent_usd, job.spec.stop)),
        ("status", _STATUS.get(job.status, job.status)),
    ]
    for left, right in zip(rows[::2], rows[1::2], strict=True):
        table.add_row(left[0], Text(left[1]), right[0], Text(right[1]))
    history = [record.plan.num_actors for record in snapshot.records if not record.plan.stop]
    trace = Text.assemble(("actors of the last rounds  ", "bold"), sparkline(history))
    lines: list[RenderableType] = [Padding(bar), table, trace]
    if any(record.trouble.latest for record in snapshot.records):
        told = plain(trouble(snapshot.records))
        lines.append(Text(told, style="yellow", no_wrap=True, overflow="ellipsis"))
    if job.waits_for:
        lines.append(Text(f"waits for {wait_text(job.waits_for)}", style="yellow"))
    lines += [Text(plain(text), style="yellow") for text in job.warnings]
    title = f"{job.spec.env_id} · {job.spec.algorithm} · seed {job.spec.seed} · {job.job_id}"
    return Panel(Group(*lines), title=Text(plain(title)), title_align="left", padding=(0, 1))


def trouble(records: Sequence[RoundRecord]) -> str:
    """Show how many actors were lost and retried so far, and why the latest one failed."""
    lost = sum(record.trouble.lost for record in records)
    retried = sum(record.trouble.retried for record in records)
    reasons = [record.trouble.latest for record in records if record.trouble.latest]
    why = f": {reasons[-1].splitlines()[0]}" if reasons else ""
    return f"actors lost {lost}, retried {retried}{why}"


def sparkline(values: Sequence[float]) -> str:
    """Draw the last values as bars scaled to their maximum.

    >>> sparkline([0, 4, 8])
    '▁▅█'
    """
    recent = values[-_SPARK_ROUNDS:]
    top = max(recent, default=0)
    if top <= 0:
        return _SPARKS[0] * len(recent)
    return "".join(_SPARKS[round(value / top * (len(_SPARKS) - 1))] for value in recent)


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _rate(steps_per_s: float | None) -> str:
    return "–" if steps_per_s is None else f"{steps_per_s:,.0f} steps/s"
