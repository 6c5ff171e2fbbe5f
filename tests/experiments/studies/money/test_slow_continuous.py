"""What `slow_continuous` makes of runs that were never run."""

from experiments.catalogue import load
from experiments.grid import CellId, Scale
from experiments.outcome import JobOutcome
from experiments.reporting.findings import Findings
from experiments.studies.money.calibration import durations
from experiments.studies.money.slow_continuous import ENV_ID, STEP_S
from tests.experiments.made_up import outcome

FULL = Scale(seeds=4, quick=False)


def a_run(*returns: float) -> JobOutcome:
    """A run that is evaluated every 2,048 steps."""
    made = outcome(returns, actors=[8] * (len(returns) - 1))
    evaluations = (
        each.model_copy(update={"env_steps": 2048 * each.updates}) for each in made.evaluations
    )
    return made.model_copy(update={"evaluations": tuple(evaluations)})


def found(**made: list[JobOutcome]) -> Findings:
    done = {
        CellId(algorithm, ENV_ID, seed): run
        for algorithm, runs in made.items()
        for seed, run in enumerate(runs)
    }
    findings = load("slow_continuous").find(FULL, done)
    assert isinstance(findings, Findings)
    return findings


def rows(findings: Findings, title: str) -> dict[str, tuple[str, ...]]:
    (table,) = [each for each in findings.tables if each.title.startswith(title)]
    return {str(row[0]): tuple(map(str, row[1:])) for row in table.rows}


def test_actors_beyond_those_that_the_learner_follows_make_sac_no_faster() -> None:
    fast = a_run(0.0, *[100.0] * 15, 1600.0)
    steps = 16 * 2048
    findings = found(ppo=[fast] * 4, sac=[fast] * 4)
    assert rows(findings, "Steps")["sac"] == (f"{steps:,}",) * 5
    minutes = {place: [*map(float, row)] for place, row in rows(findings, "Minutes").items()}
    ppo, sac = zip(*minutes.values(), strict=True)
    assert ppo[2] > ppo[3] > ppo[4] > ppo[5], "2, 4, 16 and 64 actors"
    learning = (steps - 5000) * durations(ENV_ID, "sac").gradient_step_s / 60
    assert learning < sac[5] < sac[4] + 0.1 < learning + 2.0, "the learner's start is in"
    assert minutes["a machine of 2 cores"][0] > steps * STEP_S / 2 / 60


def test_a_run_that_never_had_the_return_takes_forever() -> None:
    good, bad = a_run(0.0, 1600.0), a_run(0.0, 10.0)
    findings = found(ppo=[good] * 4, sac=[good, bad, bad, bad])
    assert set(rows(findings, "Minutes")) == set(rows(findings, "USD"))
    assert {row[1].split()[0] for row in rows(findings, "USD").values()} == {"never"}
    assert rows(findings, "Steps")["sac"][1:] == ("2,048", "never", "never", "never")
    verdicts = {claim.paper.split(" at ")[0]: claim.verdict for claim in findings.claims}
    assert verdicts["SAC needs fewer steps than PPO"] == "not decided: the intervals overlap"


def test_an_algorithm_with_fewer_steps_is_ahead_in_steps() -> None:
    findings = found(ppo=[a_run(*[0.0] * 60, 1600.0)] * 4, sac=[a_run(0.0, 0.0, 1600.0)] * 4)
    verdicts = {claim.paper.split(" at ")[0]: claim.verdict for claim in findings.claims}
    assert verdicts["SAC needs fewer steps than PPO"] == "holds"
    few = found(ppo=[a_run(0.0, 1600.0)], sac=[a_run(0.0, 1600.0)])
    assert {claim.verdict for claim in few.claims} == {"not decided: too few runs"}
