"""What is said of a framework's two samplers, from outcomes that were made up."""

from typing import Any

import pytest

from benchmarks.environment import Environment
from experiments.catalogue import load
from experiments.experiment import Done
from experiments.frameworks.cells import FrameworkEvaluation, FrameworkOutcome
from experiments.frameworks.comparison import CONDITIONS, alike, findings
from experiments.frameworks.pricing import prices
from experiments.frameworks.telling import FrameworkTask
from experiments.grid import CellId, Scale
from experiments.reporting.statistics import Interval
from tests.experiments.made_up import MACHINE

STEPS, USD, CPU_S = 1000, 0.02, 50.0
UPDATE: Any = {"starts": "they go on", "num_actors": 8, "fragment": 25}


def outcome(final: float, *, cost_usd: float, machine: Environment = MACHINE) -> FrameworkOutcome:
    """A run whose return grows from 0 in a straight line."""
    parts = (0.0, 0.5, 1.0)
    return FrameworkOutcome(
        environment=machine,
        evaluations=tuple(
            FrameworkEvaluation(
                env_steps=round(STEPS * part),
                returns=(final * part - 1.0, final * part + 1.0),
                cpu_s=CPU_S * part,
                cost_usd=cost_usd * part,
            )
            for part in parts
        ),
    )


def made(own: float, ours: float) -> Done:
    returns = dict(zip(CONDITIONS.values(), (own, ours), strict=True))
    return {
        CellId(condition, "Hopper-v4", seed): outcome(
            final + seed, cost_usd=0.0 if final == own else USD
        )
        for condition, final in returns.items()
        for seed in range(3)
    }


@pytest.mark.parametrize("name", ["sb3", "rllib", "msrl"])
def test_both_samplers_are_told_the_same(name: str) -> None:
    tasks = [cell.task for cell in load(name).plan(Scale(seeds=3, quick=False), {}).cells]
    assert len(tasks) == 3 * len(CONDITIONS)
    kinds = set()
    for task in tasks:
        assert isinstance(task, FrameworkTask)
        assert task.steps % (task.num_actors * task.fragment) == 0  # no update is cut
        kinds.add(task.model_copy(update={"sampler": "own"}).model_dump_json())
    assert len(kinds) == 3  # seeds


def test_dollars_follow_from_counts_and_not_from_the_clock_of_a_busy_machine() -> None:
    quiet, busy = (outcome(100.0, cost_usd=usd).last for usd in (USD, 10 * USD))
    priced = prices("Hopper-v4", num_actors=8, fragment=25)
    assert priced is not None
    assert priced["nitro"](quiet) == priced["nitro"](busy) > priced["own"](quiet) > 0.0


def test_a_run_of_nitros_costs_its_rounds_and_its_cold_starts() -> None:
    priced = prices("Hopper-v4", num_actors=8, fragment=25)
    assert priced is not None
    last = outcome(100.0, cost_usd=USD).last
    none, one, two, three = (
        priced["nitro"](last.model_copy(update={"env_steps": rounds * 8 * 25, "cpu_s": 0.0}))
        for rounds in range(4)
    )
    assert none == 0.0
    assert one > two - one == pytest.approx(three - two)


def test_an_environment_that_is_not_calibrated_has_no_dollars() -> None:
    done = {key._replace(env_id="CartPole-v1"): run for key, run in made(100.0, 300.0).items()}
    found = findings(done, **UPDATE)
    assert [panel.x_label for panel in found.panels] == ["environment steps"]
    assert not [column for column in found.tables[0].columns if "$" in column or "USD" in column]
    assert {len(row) for row in found.tables[0].rows} == {len(found.tables[0].columns)}


def test_returns_between_evaluations_lie_on_straight_lines() -> None:
    run = outcome(100.0, cost_usd=USD)
    assert run.return_after(STEPS / 4) == pytest.approx(25.0)
    assert run.return_at_usd(USD / 4, lambda reached: reached.cost_usd) == pytest.approx(25.0)


def test_one_run_of_each_sampler_decides_nothing() -> None:
    one = {key: run for key, run in made(100.0, 300.0).items() if key.seed == 0}
    found = findings(one, **UPDATE)
    assert [claim.verdict for claim in found.claims] == ["not decided: too few runs"]
    assert [row[0] for row in found.tables[0].rows] == list(CONDITIONS.values())


@pytest.mark.parametrize(
    ("runs", "alike_told", "apart_told"),
    [
        (2, "the intervals overlap, of few runs", "the intervals are apart, of few runs"),
        (4, "the intervals overlap", "does not hold: the intervals are apart"),
    ],
)
def test_a_claim_says_whether_samplers_learn_alike(
    runs: int, alike_told: str, apart_told: str
) -> None:
    low, high = (Interval(value=v, low=v - 1, high=v + 1, runs=runs) for v in (10.0, 20.0))
    assert alike(low, low) == alike_told
    assert alike(low, high) == apart_told


def test_nothing_is_claimed_of_one_sampler_alone() -> None:
    done = {key: run for key, run in made(1.0, 1.0).items() if key.condition == "its own sampler"}
    assert findings(done, **UPDATE).claims == ()
