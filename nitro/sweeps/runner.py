"""Runs the rows of a sweep: several at once, under one budget, from any state.

Every change is written before it takes effect, and every job is submitted under its own key. So a
sweep killed at any moment resumes from its folder, and no job starts twice.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from nitro.client.client import NitroClient
from nitro.client.errors import AWAY_OR_BUSY, ApiError
from nitro.client.follow import Patience, stop_unfinished
from nitro.sweeps.folder import SweepFolder
from nitro.sweeps.money import left_usd, next_cap_usd, share_usd
from nitro.sweeps.outcome import has_reached, made_all_rounds, outcome_of, was_cut
from nitro.sweeps.rows import DONE, Outcome, Row, RowStatus, reached
from shared.contracts.jobs import FINISHED, Job

_LOOK_S = 0.2
_BUDGET = ("stop.budget_usd:", "budget_usd:")

Plan = Callable[[list[Row]], list[Row]]
"""Returns the next state of the rows: a search adds and promotes some."""


class View(Protocol):
    """Shows a sweep while it runs."""

    def show(self, rows: Sequence[Row], jobs: Mapping[str, Job]) -> None:
        """Show the status of the rows; `jobs` are the open rows' jobs by key."""

    def note(self, text: str) -> None:
        """Show a message once."""


class Runner:
    """Runs one sweep on one API.

    Args:
        client: The API.
        folder: The sweep's folder.
        places: Most concurrent jobs.
        budget_usd: Cap on the cost of all jobs; None for no cap.
        plan: Adds and promotes rows.
        view: Shows the rows.
        begun: Called with the id of each submitted job.
        finished: Called with each finished row and its job, before that is written.
        check: Raises if the API no longer works.
        asked: Whether a stop was requested.
        pause: Waits for at most this many seconds.
    """

    def __init__(
        self,
        client: NitroClient,
        folder: SweepFolder,
        *,
        places: int,
        budget_usd: float | None,
        plan: Plan,
        view: View,
        begun: Callable[[str], object] = lambda job_id: None,
        finished: Callable[[Row, Job], object] = lambda row, job: None,
        check: Callable[[], object],
        asked: Callable[[], bool],
        pause: Callable[[float], object],
    ) -> None:
        self._client = client
        self._folder = folder
        self._identity = folder.asked().identity
        self._places = places
        self._budget_usd = budget_usd
        self._plan = plan
        self._view = view
        self._begun = begun
        self._finished = finished
        self._check = check
        self._asked = asked
        self._pause = pause
        self._rows: list[Row] = []
        self._jobs: dict[str, Job] = {}
        self._told: set[str] = set()
        """Keys of rows whose jobs were asked to stop."""
        self._warnings: set[str] = set()
        """Shown so far: most jobs of a sweep have the same."""

    def run(self) -> list[Row]:
        """Run all rows to their ends, or until a stop is requested; return them."""
        self._rows = [self._revived(row) for row in self._folder.rows()]
        going_on, patience = True, Patience()
        while True:
            self._check()
            with patience.bearing():
                going_on = self._step()
            if not going_on:
                return self._ended()
            self._pause(_LOOK_S)

    def _step(self) -> bool:
        """Update every open job and start others; return whether anything is left to wait for."""
        asked = self._asked()
        for index, row in enumerate(self._rows):
            if row.status == "open":
                self._look(index, asked=asked)
        if not asked:
            planned = self._plan(self._rows)
            if planned != self._rows:
                self._rows = planned
                self._folder.write(planned)
            self._begin_some()
        self._view.show(self._rows, self._jobs)
        return any(row.status == "open" for row in self._rows)

    def _look(self, index: int, *, asked: bool) -> None:
        row = self._rows[index]
        if row.job_id is None:
            self._submit(index)
            return
        job = self._jobs[row.key] = self._client.get(row.job_id)
        for text in job.warnings:
            if text not in self._warnings:
                self._warnings.add(text)
                self._view.note(f"warning: {job.job_id}: {text}")
        if job.status in FINISHED:
            self._close(index, job)
            return
        mark = row.pause_steps or row.end_steps
        if row.key in self._told:
            return
        if asked or (mark is not None and has_reached(self._client, job, mark)):
            stop_unfinished(self._client, row.job_id)
            self._told.add(row.key)

    def _begin_some(self) -> None:
        """Start or resume as many rows as places and money allow."""
        while True:
            free = self._places - sum(row.status == "open" for row in self._rows)
            waiting = [i for i, row in enumerate(self._rows) if row.status == "waiting"]
            if free <= 0 or not waiting:
                return
            # Started trials come first: the budget may not reach the rest.
            waiting.sort(key=lambda i: self._rows[i].job_id is None)
            share = self._share(min(free, len(waiting)))
            able = [i for i in waiting if share is None or share > self._rows[i].refused_usd]
            if not able:
                return
            self._begin(able[0], share)

    def _share(self, places: int) -> float | None:
        if self._budget_usd is None:
            return None
        return share_usd(self._budget_usd, self._rows, places=places)

    def _begin(self, index: int, share: float | None) -> None:
        """Start or resume a row."""
        row = self._rows[index]
        cap: float | None = None
        if share is not None and self._budget_usd is not None:
            cap = next_cap_usd(row, share, left_usd(self._budget_usd, self._rows))
            if cap is None:
                self._unaffordable(index, row, share, reason=row.reason)
                return
        self._told.discard(row.key)
        self._set(index, status="open", cap_usd=cap, reason="")
        if row.job_id is None:
            self._submit(index)
        else:
            self._resume(index, row.job_id, before=row)

    def _submit(self, index: int) -> None:
        """Submit an open row's job."""
        row = self._rows[index]
        spec = row.spec
        if row.cap_usd is not None:
            stop = spec.stop.model_copy(update={"budget_usd": row.cap_usd})
            spec = spec.model_copy(update={"stop": stop})
        key = f"{self._identity}:{index}:{row.attempt}"
        try:
            job = self._client.submit(spec, idempotency_key=key)
        except ApiError as error:
            again = row.model_copy(update={"attempt": row.attempt + 1, "cap_usd": None})
            self._refused(index, again, error, share=row.cap_usd or 0.0)
            return
        self._jobs[row.key] = job
        self._set(index, job_id=job.job_id)
        self._begun(job.job_id)

    def _resume(self, index: int, job_id: str, *, before: Row) -> None:
        """Resume a row's job, unless it is running or complete."""
        job = self._client.get(job_id)
        if job.status not in FINISHED or not job.can_go_on or made_all_rounds(job):
            return
        cap = self._rows[index].cap_usd
        raised = cap if cap is not None and cap > job.spec.stop.budget_usd else None
        try:
            self._client.resume(job_id, budget_usd=raised)
        except ApiError as error:
            self._refused(index, before, error, share=(cap or 0.0) - before.most_usd)

    def _refused(self, index: int, before: Row, error: ApiError, *, share: float) -> None:
        """Record why a row's job cannot start or resume; a larger share of the budget may help."""
        if error.problem.status in AWAY_OR_BUSY:
            raise error
        if str(error).startswith(_BUDGET):
            self._unaffordable(index, before, share, reason=str(error))
        else:
            self._set(index, status="failed", reason=str(error))

    def _unaffordable(self, index: int, before: Row, share: float, *, reason: str) -> None:
        """Let a row wait for more money: the budget is too small for this many concurrent jobs."""
        self._rows[index] = before
        self._set(index, status="waiting", refused_usd=share, reason=reason)
        self._places = max(1, self._places - 1)

    def _close(self, index: int, job: Job) -> None:
        """Record the end of a row's job."""
        row = self._rows[index]
        self._jobs.pop(row.key, None)
        if job.status == "failed" and (job.error or "").startswith(_BUDGET):
            anew = {"attempt": row.attempt + 1, "job_id": None, "cap_usd": None}
            share = row.cap_usd or 0.0
            self._unaffordable(
                index, row.model_copy(update=anew), share, reason=job.error or "refused"
            )
            return
        outcome = outcome_of(self._client, job, end_steps=row.end_steps)
        ended = {"outcome": outcome, "reason": ""}
        if job.status == "failed":
            told = (job.error or job.stop_reason or "failed").splitlines()
            self._set(index, status="failed", **ended | {"reason": told[0]})
        elif job.stop_reason == "budget" and not made_all_rounds(job):
            # It needs more than the rest of its cap.
            left = max(0.0, job.spec.stop.budget_usd - outcome.spent_usd - outcome.reserved_usd)
            why = f"its cap of {job.spec.stop.budget_usd:.4f} USD is used up"
            self._set(index, status="waiting", refused_usd=left, **ended | {"reason": why})
        else:
            status = _ended(row, job, outcome)
            if status == "finished":
                self._finished(row, job)
            self._set(index, status=status, **ended)

    def _revived(self, row: Row) -> Row:
        """Return a row for continuation in this process."""
        if row.status in ("stopped", "failed", "budget", "not started"):
            return row.model_copy(update={"status": "waiting", "refused_usd": 0.0, "reason": ""})
        if row.status != "open" or row.job_id is None:
            return row
        job = self._client.get(row.job_id)
        if job.status != "stopped" or job.stop_reason != "user":
            return row
        # An earlier process asked it to stop: at its rung, or after Ctrl-C.
        outcome = outcome_of(self._client, job, end_steps=row.end_steps)
        cut = _ended(row, job, outcome) == "stopped"
        return row.model_copy(update={"status": "waiting"}) if cut else row

    def _ended(self) -> list[Row]:
        """Mark waiting rows, unless they were asked to stop, as out of budget."""
        if not self._asked():
            for index, row in enumerate(self._rows):
                if row.status == "waiting":
                    self._set(index, status="not started" if row.outcome is None else "budget")
        return self._rows

    def _set(self, index: int, **changes: object) -> None:
        """Change a row, and write all rows."""
        row = self._rows[index]
        self._rows[index] = row.model_copy(update=changes)
        self._folder.write(self._rows)
        if self._rows[index].status in DONE and row.status not in DONE:
            self._view.show(self._rows, self._jobs)


def _ended(row: Row, job: Job, outcome: Outcome) -> RowStatus:
    """Return the status of a row whose job has ended or was asked to stop.

    A job that was completed beyond its row's rung is paused there like any other.
    """
    if row.pause_steps is not None and reached(outcome.curve, row.pause_steps):
        return "paused"
    if row.end_steps is not None and reached(outcome.curve, row.end_steps):
        return "finished"
    return "stopped" if was_cut(job) else "finished"
