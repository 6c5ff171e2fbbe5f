"""What is said of a framework's two samplers, from outcomes that were made up."""

import pytest

from benchmarks.environment import Environment
from experiments.catalogue import load
from experiments.experiment import Done
from experiments.frameworks.cells import (
    FrameworkEvaluation,
    FrameworkOutcome,
    FrameworkTask,
    usd_of,
)
from experiments.frameworks.comparison import CONDITIONS, alike, findings
from experiments.grid import CellId, Scale
from experiments.reporting.statistics import Interval
from tests.experiments.made_up import MACHINE

STEPS, USD, CPU_S = 1000, 0.02, 50.0


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


def test_dollars_are_the_job_and_the_processor() -> None:
    last = outcome(100.0, cost_usd=USD).last
    assert usd_of(last, usd_per_cpu_s=0.001) == pytest.approx(USD + 0.05)


def test_returns_between_evaluations_lie_on_straight_lines() -> None:
    run = outcome(100.0, cost_usd=USD)
    assert run.return_after(STEPS / 4) == pytest.approx(25.0)
    assert run.return_at_usd(USD / 4, usd_per_cpu_s=0.0) == pytest.approx(25.0)


def test_one_run_of_each_sampler_decides_nothing() -> None:
    one = {key: run for key, run in made(100.0, 300.0).items() if key.seed == 0}
    found = findings(one, starts="they go on")
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
    assert findings(done, starts="they go on").claims == ()
