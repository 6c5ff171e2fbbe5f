"""What `dollars` makes of runs that were never run."""

from experiments.catalogue import load
from experiments.grid import CellId, Scale
from experiments.outcome import JobOutcome
from experiments.studies.dollars import FIXED, NITRO, PAPER, regimes
from shared.contracts.job_spec import JobSpec
from shared.contracts.scaling_spec import ScheduleScaling
from tests.experiments.made_up import outcome

FULL = Scale(seeds=6, quick=False)
HOPPER = "Hopper-v4"


def a_run(*returns: float, actors: int, usd: float) -> JobOutcome:
    """A run that takes a minute, 10 GB-seconds and 100 requests for a dollar."""
    made = outcome(returns, actors=[actors] * (len(returns) - 1), usd_per_round=usd)
    total = made.total_usd
    return made.model_copy(
        update={
            "by_item": {"learner": 0.9 * total, "lambda_duration": 0.1 * total},
            "projected_wall_s": 60.0 * total,
            "lambda_gb_s": 10.0 * total,
            "lambda_requests": 100.0 * total,
        }
    )


def made() -> dict[CellId, JobOutcome]:
    """Eight actors are the cheapest fixed number, `nitro` costs three times as much, and `random`
    fails."""
    runs = {f"fixed {n}": a_run(0, 2500, actors=n, usd=abs(n - 8) + 1) for n in FIXED}
    runs |= {
        NITRO: a_run(0, 1000, 1500, 2500, actors=8, usd=1),
        "random": a_run(0, 10, actors=8, usd=1),
    }
    return {CellId(name, HOPPER, seed): run for name, run in runs.items() for seed in range(6)}


def test_regret_is_over_the_best_fixed_number() -> None:
    found = load("dollars").find(FULL, made())
    (regrets,) = (t for t in found.tables if "best fixed number" in t.title)
    worst = {str(row[0]): row[-1] for row in regrets.rows}
    assert worst["fixed 8"] == "1"
    assert 1.5 < float(str(worst[NITRO])) < 3.0  # the machine's start costs both the same
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


def test_the_papers_deployment_is_the_dearest_and_a_cpu_learner_the_cheapest() -> None:
    paper, gpu, cpu, slow = regimes()
    assert paper.held_usd_per_s > 3 * gpu.held_usd_per_s > 3 * 5 * cpu.held_usd_per_s
    assert slow.extra_step_s > 0.0 == cpu.extra_step_s


def test_every_condition_has_the_same_steps_to_come_there() -> None:
    late = a_run(0, 10, 2500, actors=64, usd=1)
    steps = [e.model_copy(update={"env_steps": 600_000 * e.updates}) for e in late.evaluations]
    late = late.model_copy(update={"evaluations": tuple(steps)})
    found = load("dollars").find(FULL, {CellId("kungfu", HOPPER, 0): late})
    assert found.tables[0].rows[0][1] == "0 of 1"


def test_nitro_reversed_in_time_has_the_same_actors() -> None:
    done = {CellId(NITRO, HOPPER, 0): outcome([0, 1, 2, 3], actors=[64, 30, 11])}
    cells = {cell.id: cell.task for cell in load("dollars").plan(FULL, done).cells}
    task = cells[CellId("nitro, reversed in time", HOPPER, 0)]
    assert isinstance(task, JobSpec)
    assert isinstance(task.scaling, ScheduleScaling)
    counts = task.scaling.num_actors
    assert len(counts) == task.stop.max_rounds
    assert (counts[0], counts[-3:]) == (11, (11, 30, 64))
