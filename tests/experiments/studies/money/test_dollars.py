"""What `dollars` makes of runs that were never run."""

import pytest

from experiments.catalogue import load
from experiments.grid import CellId, Scale
from experiments.outcome import JobOutcome
from experiments.repricing import Made, reprice
from experiments.studies.money.calibration import durations
from experiments.studies.money.dollars import regimes
from experiments.studies.money.dollars_grid import (
    COST_RATIO,
    FIXED,
    MARGINAL,
    NITRO,
    PAPER,
)
from tests.experiments.made_up import outcome

FULL = Scale(seeds=6, quick=False)
HOPPER = "Hopper-v4"


def a_run(*returns: float, actors: int) -> JobOutcome:
    """A run that is evaluated before every round and after the last one."""
    made = outcome(returns, actors=[actors] * (len(returns) - 1))
    looked = (each.model_copy(update={"evaluated_steps": (400, 500)}) for each in made.rounds)
    return made.model_copy(update={"rounds": tuple(looked)})


def made() -> dict[CellId, JobOutcome]:
    """Eight actors need the fewest rounds, policies three times as many; `random` fails."""
    runs = {f"fixed {n}": a_run(*[0] * 20 * abs(n - 8), 0, 2500, actors=n) for n in FIXED}
    runs |= {
        NITRO: a_run(0, 1000, 1500, 2500, actors=8),
        MARGINAL: a_run(0, 1000, 1500, 2500, actors=8),
        "random": a_run(0, 10, actors=8),
    }
    return {CellId(name, HOPPER, seed): run for name, run in runs.items() for seed in range(6)}


def test_regret_is_over_the_best_fixed_number() -> None:
    found = load("dollars").find(FULL, made())
    (regrets,) = (t for t in found.tables if "best fixed number" in t.title)
    worst = {str(row[0]): row[-1] for row in regrets.rows}
    assert worst["fixed 8"] == "1"
    assert float(str(worst[NITRO])) == pytest.approx(3.0, rel=0.4)
    assert worst["random"] == "never"
    assert PAPER not in worst


def test_what_never_had_the_return_is_said_so_and_not_drawn() -> None:
    found = load("dollars").find(FULL, made())
    table = next(t for t in found.tables if "to a return" in t.title)
    (row,) = (row for row in table.rows if row[0] == "random")
    assert row[1] == "0 of 6"
    assert set(row[2:]) == {"never"}
    (panel,) = found.panels
    assert "random" not in panel.categories  # type: ignore[union-attr]
    assert {claim.verdict for claim in found.claims} == {"does not hold: the other way round"}


def test_a_claim_waits_for_six_runs_of_what_it_compares() -> None:
    def told(*left_out: str) -> dict[str, tuple[str, str]]:
        runs = {c: run for c, run in made().items() if c.seed or c.condition not in left_out}
        claims = load("dollars").find(FULL, runs).claims
        return {
            claim.ours.split(": ")[1].split()[0]: (claim.verdict, claim.ours) for claim in claims
        }

    worse, few = "does not hold: the other way round", "not decided: too few runs"
    assert [verdict for verdict, _ in told().values()] == [worse, worse]
    assert {verdict for verdict, _ in told("random").values()} == {worse}
    assert [told(NITRO)[name][0] for name in (NITRO, MARGINAL)] == [few, worse]
    # A number that has too few runs is no rival; where all have, nothing is decided.
    verdict, ours = told("fixed 8")[NITRO]
    assert (verdict == few, "fixed 8" in ours) == (False, False)
    assert {verdict for verdict, _ in told(*(f"fixed {n}" for n in FIXED)).values()} == {few}


def test_what_starting_takes_of_a_bill_is_told_apart() -> None:
    (table,) = (t for t in load("dollars").find(FULL, made()).tables if "what starting" in t.title)
    row = next(row for row in table.rows if row[0] == "fixed 8")
    everything, up, warm, own, server = (float(str(value)) for value in row[1:])
    learner = regimes()[2]
    start_usd = learner.start_s * learner.basis.learner_usd_per_s
    assert everything - up == pytest.approx(start_usd, rel=0.02)
    # The first round's environments start for two seconds each; the rounds wait as long.
    assert up - warm > 8 * 2 * 1769 / 1024 * 1.33334e-5
    assert 0 < own < warm
    assert 0 < server < warm


def test_the_papers_deployment_is_the_dearest_and_a_cpu_learner_the_cheapest() -> None:
    made = Made(run=a_run(0, 2500, actors=8), durations=durations(HOPPER, "standard"))
    paper, gpu, cpu, slow = (reprice(made, regime).usd[-1] for regime in regimes())
    assert paper > 2 * gpu > 2 * 5 * cpu
    # 8 actors of 256 steps of 21 ms each: more than anything else in a single round.
    assert 0.8 < (slow - cpu) / (8 * 256 * 0.021 * 1769 / 1024 * 1.66667e-5) < 1.6


def test_marginal_is_told_what_a_cpu_learner_s_rounds_cost() -> None:
    cpu = regimes()[2]
    for env_id in ("Hopper-v4", "HalfCheetah-v4", "Walker2d-v4"):
        known = durations(env_id, "standard")
        few, many = (
            reprice(Made(run=plain(n), durations=known, measurements=5 / 3), cpu).usd
            for n in (8, 64)
        )
        # The second round of each, as the first is cold.
        round_usd = [usd[2] - usd[1] for usd in (few, many)]
        actor_usd = (round_usd[1] - round_usd[0]) / 56
        fixed_usd = round_usd[0] - 8 * actor_usd
        assert COST_RATIO / 1.5 < fixed_usd / actor_usd < COST_RATIO * 1.5


def plain(actors: int) -> JobOutcome:
    return outcome((0, 1, 2), actors=[actors] * 2)


def test_every_condition_has_the_same_steps_to_come_there() -> None:
    late = a_run(0, 10, 2500, actors=64)
    steps = [e.model_copy(update={"env_steps": 600_000 * e.updates}) for e in late.evaluations]
    late = late.model_copy(update={"evaluations": tuple(steps)})
    found = load("dollars").find(FULL, {CellId("kungfu", HOPPER, 0): late})
    assert found.tables[1].rows[0][1] == "0 of 1"
