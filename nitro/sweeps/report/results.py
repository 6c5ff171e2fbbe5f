"""A sweep's results: a line per environment and setting, and comparisons of settings.

Returns of different environments cannot be averaged directly. Comparisons over all environments use
scores: 0 is the mean return of untrained policies, 1 the best interquartile mean of any setting.
"""

import math
from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

from nitro.sweeps.report.statistics import (
    Array,
    Estimate,
    interquartile_mean,
    interquartile_mean_interval,
    probability_of_improvement,
)
from nitro.sweeps.rows import Row, RowStatus
from nitro.sweeps.search.trial import trials_of

COUNTED: frozenset[RowStatus] = frozenset({"finished"})
"""Statuses of completed rows, whose returns count."""


class Group(BaseModel):
    """All seeds of one setting on one environment."""

    model_config = ConfigDict(frozen=True)

    env_id: str
    setting: str
    seeds: int
    """Number of completed jobs."""
    jobs: int
    final_return: Estimate | None
    """Interquartile mean over seeds of the last evaluations."""
    best_return: float | None
    """The highest last evaluation of any seed."""
    env_steps: int
    """Sum over all jobs."""
    wall_s: float
    """Time in rounds on this machine, summed over all jobs."""
    spent_usd: float


class Overall(BaseModel):
    """One setting on all environments together."""

    model_config = ConfigDict(frozen=True)

    setting: str
    score: Estimate
    improvement: Estimate | None
    """Probability that a run of it beats a run of the first setting."""


class Tried(BaseModel):
    """One trial of a search."""

    model_config = ConfigDict(frozen=True)

    trial: int
    setting: str
    mark: float | None
    """Environment steps of the rung where it paused for good; None if it was completed."""
    final_return: float | None
    """Interquartile mean over seeds, at its rung or end."""
    spent_usd: float


class Results(BaseModel):
    """The results of a sweep; the fields are keys of `nitro sweep show --json`."""

    model_config = ConfigDict(frozen=True)

    name: str
    groups: list[Group]
    overall: list[Overall]
    """Empty unless every setting has a completed run on every environment."""
    trials: list[Tried]
    """Trials of a search, best first."""
    spent_usd: float
    budget_usd: float | None
    unfinished: list[tuple[str, RowStatus, str]]
    """Keys, statuses and reasons of rows that do not count."""


def results(name: str, rows: Sequence[Row], *, budget_usd: float | None) -> Results:
    """Summarise rows."""
    spent_usd = sum(row.spent_usd for row in rows)
    searched, rows = rows, [row for row in rows if row.trial is None or row.final]
    environments = [*dict.fromkeys(row.env_id for row in rows)]
    settings = [*dict.fromkeys(row.setting for row in rows)]
    groups = [
        _group([row for row in rows if (row.env_id, row.setting) == (env_id, setting)])
        for env_id in environments
        for setting in settings
        if any((row.env_id, row.setting) == (env_id, setting) for row in rows)
    ]
    return Results(
        name=name,
        groups=groups,
        overall=_overall(rows, environments, settings),
        trials=_trials(searched),
        spent_usd=spent_usd,
        budget_usd=budget_usd,
        unfinished=[
            (r.key, r.status, r.reason)
            for r in searched
            if r.status not in COUNTED and r.status != "paused"
        ],
    )


def _trials(rows: Sequence[Row]) -> list[Tried]:
    trials = trials_of(rows)
    # Trials with more steps rank higher, because they were promoted.
    ranked = sorted(trials, key=lambda each: (-each.mark, -each.value, each.index))
    return [
        Tried(
            trial=each.index,
            setting=each.rows[0].setting,
            mark=None if math.isinf(each.mark) else each.mark,
            final_return=None if math.isinf(each.value) else each.value,
            spent_usd=sum(row.spent_usd for row in each.rows),
        )
        for each in ranked
    ]


def final_returns(rows: Sequence[Row]) -> Array:
    """Return the last evaluation of each completed row."""
    found = [row.outcome.final_return for row in rows if row.status in COUNTED and row.outcome]
    return np.array([value for value in found if value is not None], dtype=float)


def _group(rows: Sequence[Row]) -> Group:
    finals = final_returns(rows)
    outcomes = [row.outcome for row in rows if row.outcome is not None]
    measured = interquartile_mean_interval([finals]) if len(finals) else None
    return Group(
        env_id=rows[0].env_id,
        setting=rows[0].setting,
        seeds=len(finals),
        jobs=len(rows),
        final_return=measured,
        best_return=float(finals.max()) if len(finals) else None,
        env_steps=sum(outcome.env_steps for outcome in outcomes),
        wall_s=sum(outcome.wall_s for outcome in outcomes),
        spent_usd=sum(row.spent_usd for row in rows),
    )


def _overall(
    rows: Sequence[Row], environments: Sequence[str], settings: Sequence[str]
) -> list[Overall]:
    finals = {
        (env_id, setting): final_returns(
            [row for row in rows if (row.env_id, row.setting) == (env_id, setting)]
        )
        for env_id in environments
        for setting in settings
    }
    if len(settings) < 2 or not all(map(len, finals.values())):
        return []
    scores: dict[str, list[Array]] = {setting: [] for setting in settings}
    for env_id in environments:
        first, best = _ends(rows, env_id, [finals[env_id, setting] for setting in settings])
        for setting in settings:
            scores[setting].append((finals[env_id, setting] - first) / ((best - first) or 1.0))
    baseline = scores[settings[0]]
    return [
        Overall(
            setting=setting,
            score=interquartile_mean_interval(scores[setting]),
            improvement=None
            if setting == settings[0]
            else probability_of_improvement(scores[setting], baseline),
        )
        for setting in settings
    ]


def _ends(rows: Sequence[Row], env_id: str, finals: Sequence[Array]) -> tuple[float, float]:
    """Return an environment's returns with scores 0 and 1."""
    firsts = [row.outcome.first_return for row in rows if row.env_id == env_id and row.outcome]
    untrained = [value for value in firsts if value is not None]
    best = max(float(interquartile_mean(each)) for each in finals)
    return (float(np.mean(untrained)) if untrained else 0.0), best
