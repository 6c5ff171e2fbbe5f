"""A search's trials and promotions, played through without training."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nitro.sweeps.folder import SweepFolder
from nitro.sweeps.rows import Outcome, Point, Row
from nitro.sweeps.search.plan import SearchPlan, work
from nitro.sweeps.search.spec import SearchSpec
from nitro.sweeps.search.trial import best, trials_of
from nitro.sweeps.spec import SweepSpec

RANGE = {"hyperparameters.learning_rate": {"low": 1e-4, "high": 1e-1, "log": True}}


def spec_of(**search: Any) -> SweepSpec:
    asked = {"fields": RANGE, "trials": 8, "rungs": [10_000, 20_000], "final_seeds": 3, **search}
    body = {"environments": ["CartPole-v1"], "seeds": 2, "total_steps": 40_000, "search": asked}
    return SweepSpec.model_validate(body)


def plan_of(spec: SweepSpec, folder: Path) -> SearchPlan:
    assert spec.search is not None
    return SearchPlan(spec, spec.search, SweepFolder(folder, "search"))


def trained(row: Row) -> Row:
    """Return a row as its job would pause or end: best at a learning rate of 0.003."""
    rate = float(row.spec.hyperparameters["learning_rate"])  # type: ignore[arg-type]
    quality = -abs(math.log(rate / 3e-3)) + 0.01 * row.seed
    end = row.pause_steps or 40_000
    curve = tuple(Point(steps, quality * steps) for steps in range(5_000, int(end) + 1, 5_000))
    outcome = Outcome(rounds=1, env_steps=int(end), curve=curve)
    status = "finished" if row.pause_steps is None else "paused"
    return row.model_copy(update={"status": status, "outcome": outcome, "job_id": "job"})


def played(plan: SearchPlan, *, train: Callable[[Row], Row] = trained) -> list[list[Row]]:
    """Return the rows after each decision, until there is none left to make."""
    rows: list[Row] = []
    seen: list[list[Row]] = []
    while True:
        planned = plan(rows)
        if planned == rows:
            return seen
        seen.append(planned)
        rows = [train(row) if row.status == "waiting" else row for row in planned]


def test_trials_pause_at_each_rung_and_the_better_half_goes_on(tmp_path: Path) -> None:
    first, second, third, fourth = played(plan_of(spec_of(), tmp_path))
    assert [(row.trial, row.seed) for row in first] == [(t, s) for t in range(8) for s in (1, 2)]
    assert {row.pause_steps for row in first} == {10_000}
    ranked = [trial.index for trial in best(trials_of(list(map(trained, first))), 8)]

    def waiting(rows: list[Row]) -> set[int | None]:
        return {row.trial for row in rows if row.status == "waiting"}

    assert waiting(second) == {*ranked[:4]}
    assert waiting(third) == {*ranked[:2]}
    assert {row.pause_steps for row in third if row.status == "waiting"} == {None}
    # The winner is trained anew, with seeds that nobody has had.
    finals = [row for row in fourth if row.final]
    assert [(row.trial, row.seed) for row in finals] == [(ranked[0], seed) for seed in (3, 4, 5)]
    assert all(row.job_id is None and row.outcome is None for row in finals)
    assert [row.spec.seed for row in finals] == [3, 4, 5]
    # A promoted trial goes on with the jobs that it has.
    assert all(row.job_id == "job" for row in third if row.status == "waiting")


def test_a_search_that_waits_for_a_job_decides_nothing(tmp_path: Path) -> None:
    plan = plan_of(spec_of(), tmp_path)
    rows = plan([])
    some = [trained(row) for row in rows[:-1]] + rows[-1:]
    assert plan(some) == some
    stopped = [*some[:-1], some[-1].model_copy(update={"status": "stopped"})]
    assert plan(stopped) == stopped


def test_equal_seeds_draw_equal_values_within_their_range(tmp_path: Path) -> None:
    rows = plan_of(spec_of(), tmp_path)([])
    assert rows == plan_of(spec_of(), tmp_path / "other")([])
    rates = {row.spec.hyperparameters["learning_rate"] for row in rows}
    assert len(rates) == 8
    assert all(isinstance(rate, float) and 1e-4 <= rate <= 1e-1 for rate in rates)
    assert plan_of(spec_of(seed=1), tmp_path)([]) != rows


def test_a_failed_trial_is_the_worst(tmp_path: Path) -> None:
    def failing(row: Row) -> Row:
        done = trained(row)
        if row.trial == 0:
            return done.model_copy(update={"status": "failed", "outcome": None})
        return done

    last = played(plan_of(spec_of(trials=2, rungs=[10_000]), tmp_path), train=failing)[-1]
    assert {row.trial for row in last if row.final} == {1}


def test_rungs_save_the_steps_that_the_losers_do_not_make() -> None:
    search = spec_of().search
    assert search is not None
    # 8 to a quarter, 4 to a half, 2 to the end.
    assert work(search, 40_000) == pytest.approx(8 / 4 + 4 / 4 + 2 / 2)
    whole = SearchSpec.model_validate({"fields": RANGE, "trials": 8})
    assert work(whole, 40_000) == 8.0


def test_optuna_learns_from_earlier_batches_and_goes_on_with_the_same_trials(
    tmp_path: Path,
) -> None:
    pytest.importorskip("optuna")
    spec = spec_of(sampler="tpe", trials=40, batch=8, rungs=[10_000])
    (tmp_path / "sweeps" / "search").mkdir(parents=True)
    (tmp_path / "cut" / "sweeps" / "search").mkdir(parents=True)
    whole = played(plan_of(spec, tmp_path))

    def rates(rows: list[Row]) -> list[float]:
        found = [trial.rows[0].spec.hyperparameters["learning_rate"] for trial in trials_of(rows)]
        return [float(rate) for rate in found]  # type: ignore[arg-type]

    # Every decision by another plan, as by commands that were killed after each.
    rows: list[Row] = []
    for expected in whole:
        rows = plan_of(spec, tmp_path / "cut")(rows)
        assert rows == expected
        # Killed before the decision was written: it is made again.
        before = [row for row in rows if row.status != "waiting" or row.job_id]
        if len(before) == len(rows) - 16:
            assert plan_of(spec, tmp_path / "cut")(before) == rows
        rows = [trained(row) if row.status == "waiting" else row for row in rows]
    found = rates(rows)
    assert distance(found[20:]) < 0.7 * distance(found[:20])


def distance(rates: list[float]) -> float:
    """Return how far learning rates are from the best one, on average."""
    return sum(abs(math.log(rate / 3e-3)) for rate in rates) / len(rates)
