"""A trial of a search: one set of values, trained with every seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nitro.sweeps.report.statistics import interquartile_mean
from nitro.sweeps.rows import Row, RowStatus
from nitro.sweeps.spec import Fields

_ACTIVE: frozenset[RowStatus] = frozenset({"waiting", "open", "stopped"})


@dataclass(frozen=True, slots=True)
class Trial:
    """The rows of one set of values, one per seed."""

    index: int
    rows: tuple[Row, ...]

    @property
    def is_active(self) -> bool:
        """Whether one of its jobs has yet to pause or end."""
        return any(row.status in _ACTIVE for row in self.rows)

    @property
    def values(self) -> Fields:
        """Its drawn values."""
        return self.rows[0].values

    @property
    def mark(self) -> float:
        """The rung it pauses at; infinite without one."""
        return self.rows[0].pause_steps or math.inf

    @property
    def value(self) -> float:
        """Interquartile mean over seeds of the returns at its rung or end."""
        found = [row.outcome.return_at(self.mark) for row in self.rows if row.outcome is not None]
        known = np.array([value for value in found if value is not None], dtype=float)
        return float(interquartile_mean(known)) if len(known) else -math.inf


def trials_of(rows: Sequence[Row]) -> list[Trial]:
    """Return the trials of a search, without finalists."""
    members: dict[int, list[Row]] = {}
    for row in rows:
        if row.trial is not None and not row.final:
            members.setdefault(row.trial, []).append(row)
    return [Trial(index, tuple(found)) for index, found in sorted(members.items())]


def best(trials: Sequence[Trial], number: int) -> list[Trial]:
    """Return the trials with the highest returns, best first; ties go to the earlier."""
    return sorted(trials, key=lambda trial: (-trial.value, trial.index))[:number]
