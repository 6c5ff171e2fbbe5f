"""Reference runs summed up, against the run's own record."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.environment import describe_environment
from benchmarks.peers.reference_peer import train_peer
from benchmarks.records.published_scores import CLEANRL_PPO
from benchmarks.records.reference import PeerSeed, ReferenceResult, seed_result, summed_up
from benchmarks.references import parser, reference_spec, spec_digest
from nitro.runs.reading import Run, read_run
from shared.contracts.job_spec import JobSpec
from shared.contracts.rounds import RoundLine
from shared.hyperparameters.ppo import STANDARD
from shared.hyperparameters.presets import ALGORITHMS
from tests.nitro.synthetic_run import job, plan, result, write_run


def run_with(returns: list[tuple[float, ...]]) -> Run:
    """A run of rounds in which these training episodes ended."""
    results = [result(k, steps=100, returns=ended) for k, ended in enumerate(returns)]
    lines = tuple(
        RoundLine(plan=plan(found.round), result=found, curvature=None, evaluation=None)
        for found in results
    )
    whole = job(spec=JobSpec(steps_per_actor=1024))  # of environments with 1,000 an episode
    return Run(folder=Path("run"), job=whole, rounds=lines, ledger=())


def test_the_return_is_the_mean_of_the_last_hundred_training_episodes() -> None:
    found = seed_result(run_with([(1e6,) * 40, (1.0,) * 30, (), (2.0,) * 50, (5.0,) * 20]))
    assert found.final_return == pytest.approx((30 * 1.0 + 50 * 2.0 + 20 * 5.0) / 100)
    assert found.episodes == 140
    assert found.env_steps == 500
    # 100 steps in 2 seconds a round
    assert found.steps_per_s == pytest.approx(50.0)
    assert found.curve[0] == (100, 1e6)
    assert found.curve[-1] == (500, found.final_return)
    assert found.evaluation_return is None


def test_a_long_curve_is_thinned_and_keeps_its_end() -> None:
    found = seed_result(run_with([(float(k),) * 100 for k in range(500)]))
    assert len(found.curve) <= 60
    assert found.curve[-1] == (50_000, 499.0)
    steps = [point[0] for point in found.curve]
    assert steps == sorted(steps)


def test_a_run_without_an_episode_has_no_return() -> None:
    with pytest.raises(RuntimeError, match="no whole episode ended"):
        seed_result(run_with([(), ()]))


def test_where_fragments_cut_episodes_the_evaluation_is_the_return(tmp_path: Path) -> None:
    """The synthetic run has fragments of 256 steps and episodes of 1,000."""
    run = read_run(write_run(tmp_path))
    found = seed_result(run)
    assert found.final_return == found.evaluation_return == pytest.approx(430.0)
    assert found.curve[-1] == (found.env_steps, found.final_return)
    assert len(found.curve) == len([rounds for rounds, _ in run.evaluations if rounds])
    beside = PeerSeed(seed=7, final_return=1.0, episodes=100, about={})
    summary = summed_up(
        run.job, [found], [beside], command="again", environment=describe_environment()
    )
    assert summary.met is None


def test_a_runs_folder_is_read_with_its_last_evaluation(tmp_path: Path) -> None:
    found = seed_result(read_run(write_run(tmp_path)))
    assert found.evaluation_return == pytest.approx(430.0)
    assert found.seed == 7


@pytest.mark.parametrize(("mean", "met"), [(2112.0, True), (2110.0, False)])
def test_seeds_are_held_against_the_published_mean_less_its_deviation(
    mean: float, met: bool
) -> None:
    """CleanRL's Hopper-v4: 2382.86 - 271.74 = 2111.12."""
    seeds = [seed_result(run_with([(mean + shift,) * 100])) for shift in (-30.0, 0.0, 30.0)]
    spec = reference_spec(parser().parse_args(["Hopper-v4"]), 1)
    found = summed_up(
        job(spec=spec), seeds, (), command="again", environment=describe_environment()
    )
    assert found.mean == pytest.approx(mean)
    assert found.std == pytest.approx(600**0.5)
    assert found.published == CLEANRL_PPO["Hopper-v4"]
    assert found.met is met
    assert found.hyperparameters == STANDARD.model_dump(mode="json")
    assert "seed" not in found.spec
    assert ReferenceResult.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(("mean", "met"), [(-5.4, True), (-5.6, False)])
def test_what_nobody_published_is_held_against_the_peer_if_that_was_trained(
    mean: float, met: bool
) -> None:
    seeds = [seed_result(run_with([(mean,) * 100]))]
    peer = [
        PeerSeed(seed=seed, final_return=final_return, episodes=500, about={})
        for seed, final_return in ((1, -5.5), (2, -4.5))
    ]
    reacher = job(spec=reference_spec(parser().parse_args(["Reacher-v4"]), 1))
    alone, beside = (
        summed_up(reacher, seeds, others, command="again", environment=describe_environment())
        for others in ((), peer)
    )
    assert alone.published is None
    assert alone.met is None
    # The peer's -5 less its 0.5.
    assert beside.met is met


def test_a_peers_seed_is_trained_once(tmp_path: Path) -> None:
    kept = PeerSeed(seed=3, final_return=-4.0, episodes=7, about={"torch": "2"})
    path = tmp_path / "stable-baselines3-Reacher-v4-2048-3.json"
    path.write_text(kept.model_dump_json())
    assert train_peer("Reacher-v4", steps=2048, seed=3, folder=tmp_path) == kept


def test_a_million_steps_are_cleanrls_488_updates_of_2048_steps() -> None:
    spec = reference_spec(parser().parse_args(["Hopper-v4"]), 2)
    assert (spec.env_id, spec.preset, spec.seed) == ("Hopper-v4", "standard", 2)
    assert spec.stop.max_rounds == 1_000_000 // 2048 == 488
    assert spec.actors.min * spec.steps_per_actor == 2048


def test_a_seed_is_trained_again_once_its_preset_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = JobSpec(algorithm="impact", preset="standard", seed=1)
    before = spec_digest(spec)
    assert spec_digest(spec.model_copy()) == before
    assert spec_digest(spec.model_copy(update={"seed": 2})) != before
    traits = ALGORITHMS["impact"]
    changed = traits.presets["standard"].model_copy(update={"num_epochs": 3})
    presets = {**traits.presets, "standard": changed}
    monkeypatch.setitem(ALGORITHMS, "impact", replace(traits, presets=presets))
    assert spec_digest(spec) != before
