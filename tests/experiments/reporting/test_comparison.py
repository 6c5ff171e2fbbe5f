"""Returns at equal rounds and at equal dollars, by hand."""

import pytest

from experiments.grid import CellId, Scale
from experiments.outcome import JobOutcome
from experiments.reporting.comparison import (
    actors_by_round,
    common_usd,
    comparison_table,
    fixed_alone,
    higher_return,
    pooled_table,
    return_at_usd,
    returns_by_round,
    returns_by_usd,
)
from tests.experiments.made_up import outcome

HOPPER, WALKER = "Hopper-v4", "Walker2d-v4"


def runs(condition: str, env_id: str, *made: JobOutcome) -> dict[CellId, JobOutcome]:
    return {CellId(condition, env_id, seed): run for seed, run in enumerate(made)}


CHEAP = runs("cheap", HOPPER, *(outcome([0, 10, 20]), outcome([0, 12, 22])) * 2)
DEAR = runs("dear", HOPPER, *(outcome([0, r, r + 30], usd_per_round=4) for r in (30, 34, 30, 34)))
BOTH = {**CHEAP, **DEAR}


def test_money_is_interpolated_between_evaluations() -> None:
    run = outcome([0, 30, 60], usd_per_round=4)
    assert run.return_at_usd(2.0) == pytest.approx(15.0)
    assert run.return_at_usd(6.0) == pytest.approx(45.0)
    assert run.final_return == 60


def test_equal_dollars_can_turn_the_order_round() -> None:
    assert common_usd(BOTH, HOPPER) == 2.0  # the cheap ones' whole bill
    assert return_at_usd(BOTH, "cheap", HOPPER, 2.0).value == pytest.approx(21.0)
    assert return_at_usd(BOTH, "dear", HOPPER, 2.0).value == pytest.approx(16.0)
    (rounds,) = higher_return(BOTH, "dear", "cheap", paper="")
    assert rounds.verdict == "holds"
    (dollars,) = higher_return(BOTH, "dear", "cheap", paper="", equal="dollars")
    assert dollars.verdict.startswith("does not hold")


def test_only_fixed_numbers_are_billed_for_the_environments_they_use() -> None:
    half_warm = {"by_item": {"provisioned_concurrency": 4.0}}
    made = outcome([0, 1, 2], actors=[16, 16], usd_per_round=4).model_copy(update=half_warm)
    both = {**runs("fixed", HOPPER, made), **runs("nitro", HOPPER, made)}
    found = fixed_alone(both, ["fixed"], scale=Scale(seeds=1, quick=False))
    assert [run.total_usd for run in found.values()] == [5.0, 8.0]
    quick = outcome([0, 1, 2], actors=[3, 3], usd_per_round=4).model_copy(update=half_warm)
    (alone,) = fixed_alone(
        runs("fixed", HOPPER, quick), ["fixed"], scale=Scale(seeds=1, quick=True)
    ).values()
    assert alone.total_usd == 6.0, "a quick run's range ends at 6"
    for mean_warm, total_usd in ((32.0, 6.0), (16.0, 8.0)):
        new = runs("fixed", HOPPER, made.model_copy(update={"mean_warm": mean_warm}))
        (alone,) = fixed_alone(new, ["fixed"], scale=Scale(seeds=1, quick=False)).values()
        assert alone.total_usd == total_usd, "a bill that kept fewer has less to save"


def test_equal_steps_do_not_look_at_money() -> None:
    few, many = outcome([0, 10, 20]), outcome([0, 30, 60], actors=[16, 16], usd_per_round=4)
    done = {**runs("few", HOPPER, few, few), **runs("many", HOPPER, many, many)}
    (steps,) = higher_return(done, "many", "few", paper="", equal="steps")
    # 2 rounds of 8 actors are 4,096 steps: one round of 16 actors.
    assert steps.ours == ("Hopper-v4, after 4,096 steps: many 30 [30, 30], few 20 [20, 20]")


def test_curves_hold_every_condition() -> None:
    panel = returns_by_round(BOTH, HOPPER)
    assert [(s.label, s.x, s.y) for s in panel.series] == [
        ("cheap", (0, 1, 2), (0, 11, 21)),
        ("dear", (0, 1, 2), (0, 32, 62)),
    ]
    ends = [s.x[-1] for s in returns_by_usd(BOTH, HOPPER).series]
    assert ends == [2.0, 8.0]  # as far as every run of it went
    counts = actors_by_round(runs("x", HOPPER, outcome([0, 1, 2], actors=[8, 64])), HOPPER)
    assert counts.series[0].y == (8, 64)


def test_a_condition_missing_somewhere_makes_no_claim_there() -> None:
    done = {**BOTH, **runs("cheap", WALKER, outcome([0, 1]))}
    assert len(higher_return(done, "dear", "cheap", paper="")) == 1


def test_tables_sum_up_and_pool_by_usual_returns() -> None:
    table = comparison_table(BOTH, HOPPER)
    assert [row[0] for row in table.rows] == ["cheap", "dear"]
    assert table.rows[0][1] == 4
    done = {
        **runs("a", HOPPER, outcome([0, 600]), outcome([0, 600])),
        **runs("a", WALKER, outcome([0, 1000]), outcome([0, 1000])),
    }
    assert pooled_table(done).rows[0][1] == "1 [1, 1]"


def test_one_run_of_each_environment_makes_no_interval() -> None:
    done = {**runs("a", HOPPER, outcome([0, 300])), **runs("a", WALKER, outcome([0, 1000]))}
    assert pooled_table(done).rows[0][1:] == ("0.75", "0.75")
