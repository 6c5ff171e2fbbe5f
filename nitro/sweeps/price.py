"""A sweep's estimated time and cost, from the model of `nitro plan`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from nitro.errors import CommandError
from nitro.spec.total_steps import planned_steps
from nitro.sweeps.grid import row_of
from nitro.sweeps.rows import Row
from nitro.sweeps.search.plan import work
from nitro.sweeps.search.sampling import random_values
from nitro.sweeps.search.spec import SearchSpec
from nitro.sweeps.spec import SweepSpec
from nitro.tables import columns_table

if TYPE_CHECKING:
    from rich.table import Table

    from shared.contracts.job_spec import JobSpec

_MEANINGLESS = frozenset(
    {"learning_rate", "discount", "gae_lambda", "clip", "entropy_coefficient", "value_coefficient"}
)
"""Hyper-parameters that change neither the time nor the price of a job."""
_NUMBERS = frozenset({"jobs", "steps each", "minutes", "USD"})
Measure = Callable[["JobSpec", int], tuple[float, float]]
"""Returns the seconds of a job here and its dollars on AWS; the steps are given."""


class Priced(BaseModel):
    """Jobs of one environment and setting; the fields are keys of `--json`."""

    model_config = ConfigDict(frozen=True)

    env_id: str
    setting: str
    jobs: int
    env_steps: int | None
    """Steps of each; None if a round's steps depend on the number of actors."""
    minutes: float | None
    """Seconds of all on this machine, in sequence; None if unknown."""
    usd: float | None
    """Dollars of all, serverless with a learner without a GPU."""
    reason: str = ""
    """Why there is no estimate."""


class SweepPrice(BaseModel):
    """A sweep's price before training; the fields are keys of `--dry-run --json`."""

    model_config = ConfigDict(frozen=True)

    name: str
    groups: list[Priced]
    parallel: int
    parallel_reason: str
    budget_usd: float | None


def priced(rows: Sequence[Row], measure: Measure) -> list[Priced]:
    """Return the time and cost of rows, by environment and setting.

    Jobs that do not differ in time are measured once.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.env_id, row.setting), []).append(row)
    known: dict[str, tuple[float, float] | str] = {}
    found: list[Priced] = []
    for (env_id, setting), members in groups.items():
        spec, jobs = members[0].spec, len(members)
        steps = members[0].end_steps or planned_steps(spec)
        if (alike := _shape(spec)) not in known:
            known[alike] = _measured(spec, steps, measure)
        each = known[alike]
        told = {"env_id": env_id, "setting": setting, "jobs": jobs, "env_steps": steps}
        if isinstance(each, str):
            found.append(Priced(**told, minutes=None, usd=None, reason=each))
        else:
            found.append(Priced(**told, minutes=jobs * each[0] / 60, usd=jobs * each[1]))
    return found


def priced_search(
    spec: SweepSpec, search: SearchSpec, measure: Measure, *, runs_dir: Path
) -> list[Priced]:
    """Return the time and cost of a search, considering jobs that pause for good at a rung."""
    values = random_values(search, 0)
    row = row_of(spec, spec.environments[0], "trials", values, seed=0, runs_dir=runs_dir)
    (one,) = priced([row], measure)
    jobs = search.trials * len(spec.seeds)
    whole = work(search, one.env_steps) * len(spec.seeds) if one.env_steps else float(jobs)
    anew = search.finalists * search.final_seeds
    found = [_times(one, "trials", jobs, whole)]
    return [*found, _times(one, "finalists", anew, anew)] if anew else found


def _times(one: Priced, setting: str, jobs: int, whole: float) -> Priced:
    minutes = None if one.minutes is None else whole * one.minutes
    usd = None if one.usd is None else whole * one.usd
    changed = {"setting": setting, "jobs": jobs, "minutes": minutes, "usd": usd}
    return one.model_copy(update=changed)


def measure_here(spec: "JobSpec", steps: int) -> tuple[float, float]:
    """Measure a job on this machine, as `nitro plan` does.

    Raises:
        CommandError: The environment fails, or the plan has no serverless way.
    """
    from nitro.planning.command import planned

    plan = planned(spec, steps, usd_per_hour=10.0)
    here = next(way for way in plan.ways if way.place == "here")
    actors = spec.actors.max
    cloud = [way for way in plan.ways if way.place == "serverless" and way.learner == "cpu"]
    if not cloud:
        raise CommandError("its episodes exceed the function's time limit")
    return here.wall_s, min(cloud, key=lambda way: abs(way.num_actors - actors)).usd


def price_table(price: SweepPrice, *, width: int) -> "Table":
    """Format a price for people."""
    total = _total(price.groups)
    rows = [*price.groups, *([total] if len(price.groups) > 1 else [])]
    columns = {
        "environment": [each.env_id for each in rows],
        "setting": [each.setting for each in rows],
        "jobs": [str(each.jobs) for each in rows],
        "steps each": ["–" if each.env_steps is None else f"{each.env_steps:,}" for each in rows],
        "minutes": ["–" if each.minutes is None else f"{each.minutes:.1f}" for each in rows],
        "USD": ["–" if each.usd is None else f"{each.usd:.4f}" for each in rows],
    }
    return columns_table(columns, numbers=_NUMBERS, uncut=6, width=width)


def _total(groups: Sequence[Priced]) -> Priced:
    minutes, dollars = [g.minutes for g in groups], [g.usd for g in groups]
    return Priced(
        env_id="all",
        setting="",
        jobs=sum(group.jobs for group in groups),
        env_steps=None,
        minutes=None if None in minutes else sum(m for m in minutes if m is not None),
        usd=None if None in dollars else sum(d for d in dollars if d is not None),
    )


def _measured(spec: "JobSpec", steps: int | None, measure: Measure) -> tuple[float, float] | str:
    if steps is None or not spec.learns_in_order or planned_steps(spec) is None:
        return "a plan needs equal rounds with equal updates"
    try:
        return measure(spec, steps)
    except CommandError as error:
        return str(error)


def _shape(spec: "JobSpec") -> str:
    """Return the fields of a job that determine its time and price."""
    values = {k: v for k, v in spec.hyperparameters.items() if k not in _MEANINGLESS}
    alike = spec.model_copy(update={"seed": 0, "tags": (), "name": None, "hyperparameters": values})
    return alike.model_dump_json()
