"""A search: trials are sampled in batches, pause together at rungs, and the best resume exactly.

    batch     drawn together; with TPE, given the results of earlier batches
    rung      all trials of a batch pause there; the best part of them is promoted
    finalist  the best of all trials, trained anew with seeds that no trial has had

A promoted trial resumes its jobs and ends as if it had never paused. Decisions depend only on the
rows: a killed and resumed search has the same trials.
"""

import math
from collections.abc import Mapping, Sequence

from nitro.sweeps.folder import SweepFolder
from nitro.sweeps.grid import row_of
from nitro.sweeps.rows import Row
from nitro.sweeps.search.sampling import proposed_values, random_values
from nitro.sweeps.search.spec import SearchSpec
from nitro.sweeps.search.trial import Trial, best, trials_of
from nitro.sweeps.spec import Fields, SweepSpec


class SearchPlan:
    """Adds and promotes the rows of one search."""

    def __init__(self, spec: SweepSpec, search: SearchSpec, folder: SweepFolder) -> None:
        self._spec = spec
        self._search = search
        self._folder = folder

    def __call__(self, rows: list[Row]) -> list[Row]:
        """Return the next state of the rows."""
        search = self._search
        for begin in range(0, search.trials, search.batch_size):
            batch = range(begin, min(begin + search.batch_size, search.trials))
            trials = [trial for trial in trials_of(rows) if trial.index in batch]
            if not trials:
                return [*rows, *self._drawn(batch, trials_of(rows))]
            if any(trial.is_active for trial in trials):
                return rows
            mark = max(trial.mark for trial in trials)
            if mark < math.inf:
                return promoted(rows, [t for t in trials if t.mark == mark], search)
        if any(row.final for row in rows):
            return rows
        return [*rows, *self._finalists(trials_of(rows))]

    def _drawn(self, batch: range, before: Sequence[Trial]) -> list[Row]:
        if self._search.sampler == "random":
            values = [random_values(self._search, index) for index in batch]
        else:
            told = [trial for trial in before if math.isfinite(trial.value)]
            values = proposed_values(self._search, self._folder.journal, [*batch], told)
        first = self._search.rungs[0] if self._search.rungs else None
        return [
            self._row(index, fields, seed).model_copy(
                update={"trial": index, "values": fields, "pause_steps": first}
            )
            for index, fields in zip(batch, values, strict=True)
            for seed in self._spec.seeds
        ]

    def _finalists(self, trials: Sequence[Trial]) -> list[Row]:
        whole = [trial for trial in trials if trial.mark == math.inf]
        fresh = max(self._spec.seeds) + 1
        return [
            trial.rows[0].model_copy(
                update={
                    **_NEW,
                    "seed": seed,
                    "spec": trial.rows[0].spec.model_copy(update={"seed": seed}),
                }
            )
            for trial in best(whole, self._search.finalists)
            for seed in range(fresh, fresh + self._search.final_seeds)
        ]

    def _row(self, index: int, fields: Fields, seed: int) -> Row:
        told = ", ".join(f"{path.rpartition('.')[2]}={v:.4g}" for path, v in _numbers(fields))
        name = f"trial {index}: {told}"
        env_id = self._spec.environments[0]
        return row_of(self._spec, env_id, name, fields, seed=seed, runs_dir=self._folder.runs_dir)


_NEW: Mapping[str, object] = {
    "status": "waiting",
    "reason": "",
    "job_id": None,
    "cap_usd": None,
    "refused_usd": 0.0,
    "attempt": 0,
    "pause_steps": None,
    "final": True,
    "outcome": None,
}
"""Fields of a finalist's row that replace its trial's."""


def promoted(rows: list[Row], paused: Sequence[Trial], search: SearchSpec) -> list[Row]:
    """Return the rows with the best paused trials promoted to the next rung, or to the end."""
    mark = paused[0].mark
    later = [rung for rung in search.rungs if rung > mark]
    going_on = best(paused, max(1, math.ceil(search.keep * len(paused))))
    indices = {trial.index for trial in going_on}
    changed: list[Row] = []
    for row in rows:
        if row.trial in indices and not row.final:
            status = "waiting" if row.status == "paused" else row.status
            next_mark = float(later[0]) if later else None
            row = row.model_copy(update={"status": status, "pause_steps": next_mark})
        changed.append(row)
    return changed


def work(search: SearchSpec, total_steps: int) -> float:
    """Return a search's work in whole trials, since rungs cut most of them short."""
    whole = 0.0
    for begin in range(0, search.trials, search.batch_size):
        left = min(search.batch_size, search.trials - begin)
        before = 0
        for mark in (*search.rungs, total_steps):
            whole += left * (min(mark, total_steps) - before) / total_steps
            before = min(mark, total_steps)
            left = max(1, math.ceil(search.keep * left))
    return whole


def _numbers(fields: Fields) -> list[tuple[str, float]]:
    return [(path, v) for path, v in fields.items() if isinstance(v, int | float)]
