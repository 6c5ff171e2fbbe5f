"""The off-policy study summed up: what it claims follows from its seeds."""

from pathlib import Path

import pytest

from benchmarks.environment import describe_environment
from benchmarks.off_policy import parser, result_name, study_spec
from benchmarks.records.off_policy import (
    AlgorithmResult,
    StudyResult,
    algorithm_result,
    claims,
    study_seed,
)
from benchmarks.records.reference import seed_result
from nitro.runs.reading import Run
from shared.contracts.rounds import RoundLine
from tests.nitro.synthetic_run import job, plan, result


def run_of(algorithm: str, mean: float, stats: dict[str, float], in_flight: int = 1) -> Run:
    """A run of two rounds whose training episodes return `mean`."""
    spec = study_spec("Hopper-v4", algorithm, rounds_in_flight=in_flight, seed=1, steps=4096)
    rounds = tuple(
        RoundLine(
            plan=plan(k),
            result=result(k, returns=(mean,) * 50, stats=stats),
            curvature=None,
            evaluation=None,
        )
        for k in range(2)
    )
    return Run(folder=Path("run"), job=job(spec=spec), rounds=rounds, ledger=())


def result_of(algorithm: str, mean: float, wall_s: float, in_flight: int = 1) -> AlgorithmResult:
    seeds = []
    for shift in (-30.0, 0.0, 30.0):
        run = run_of(algorithm, mean + shift, {}, in_flight)
        seeds.append(study_seed(run, seed_result(run), projected_wall_s=wall_s + shift))
    return algorithm_result(run, seeds)


def test_a_seed_tells_how_much_it_replayed_and_how_stale_its_data_was() -> None:
    stats = {"updates": 3.0, "replays": 2.0, "policy_lag_mean": 1.5}
    run = run_of("impact", 100.0, stats)
    seed = study_seed(run, seed_result(run), projected_wall_s=7.0)
    assert (seed.updates_per_round, seed.replays_per_round, seed.policy_lag_mean) == (3.0, 2.0, 1.5)
    assert seed.training.final_return == pytest.approx(100.0)
    run = run_of("ppo", 100.0, {})
    assert study_seed(run, seed_result(run), projected_wall_s=7.0).replays_per_round is None


def test_an_algorithm_is_its_seeds_mean_and_deviation() -> None:
    found = result_of("impala", 1500.0, 100.0)
    assert found.return_mean == pytest.approx(1500.0)
    assert found.return_std == pytest.approx(600**0.5)
    assert found.projected_wall_s == pytest.approx(100.0)
    assert (found.spec["algorithm"], found.spec["preset"]) == ("impala", "standard")
    assert "seed" not in found.spec
    assert found.hyperparameters["loss_reduction"] == "mean"


@pytest.mark.parametrize(
    ("impact", "impala", "expected"),
    [
        ((2000.0, 90.0), 1000.0, [True, True, True]),
        ((1999.0, 100.0), 999.0, [False, False, False]),
        ((2500.0, 101.0), 3000.0, [True, False, True]),
    ],
)
def test_claims_hold_or_not(
    impact: tuple[float, float], impala: float, expected: list[bool]
) -> None:
    algorithms = (
        result_of("ppo", 2000.0, 100.0),
        result_of("impact", *impact),
        result_of("impact", 1000.0, 200.0, in_flight=2),
        result_of("impala", impala, 50.0, in_flight=2),
    )
    found = claims(algorithms)
    assert [holds for name, holds in found.items() if "IMPACT, 2" not in name] == expected
    assert [holds for name, holds in found.items() if "IMPACT, 2" in name] == [False, False]
    study = StudyResult(
        env_id="Hopper-v4",
        command="again",
        environment=describe_environment(),
        algorithms=algorithms,
        claims=claims(algorithms),
    )
    assert StudyResult.model_validate_json(study.model_dump_json()) == study


def test_all_algorithms_get_the_same_steps_and_only_off_policy_rounds_overlap() -> None:
    options = parser().parse_args([])
    assert (options.env_id, options.seeds, options.steps) == ("Hopper-v4", 3, 1_000_000)
    specs = [
        study_spec("Hopper-v4", name, rounds_in_flight=2, seed=1, steps=10**6)
        for name in ("ppo", "impact")
    ]
    assert {spec.stop.max_rounds for spec in specs} == {488}
    assert [spec.open_rounds for spec in specs] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["ALE/Qbert-v5"], "ale-qbert-v5.json"),
        (["--algorithms", "impala", "impact", "ppo"], "hopper-v4.json"),
        (["--algorithms", "ppo", "impact", "ppo"], "hopper-v4-impact-ppo.json"),
        (["--first-seed", "9"], "hopper-v4-from-seed-9.json"),
        (["--algorithms", "ppo", "--first-seed", "2"], "hopper-v4-ppo-from-seed-2.json"),
    ],
)
def test_a_study_of_a_part_does_not_replace_one_of_the_whole(
    arguments: list[str], name: str
) -> None:
    assert result_name(parser().parse_args(arguments)) == name


@pytest.mark.parametrize("option", ["--seeds", "--first-seed", "--steps"])
@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_a_number_that_trains_nothing_is_refused_by_its_option(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parser().parse_args([f"{option}={value}"])
    assert caught.value.code == 2
    assert f"argument {option}: '{value}' is not a whole number above 0" in capsys.readouterr().err
