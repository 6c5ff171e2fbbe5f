"""The study's decisions by hand, and a tiny run."""

import pytest

from experiments.grid import CellId, Scale
from experiments.studies.detector.detector_subsampling import find
from experiments.studies.detector.measured_run import Study, Subsampling, decided, run
from shared.contracts.rounds import Curvature


def curvature(ratio: float) -> Curvature:
    return Curvature(
        lambda_max=ratio, lambda_min=-1.0, residual=0.0, matvecs=3, num_samples=8, elapsed_s=0.1
    )


def test_decisions_follow_the_papers_formula() -> None:
    # Scores: first ratio 1; 2 is the largest, 0; then (2 - 1.5) / (2 - 1) = 0.5 times 0.96 squared.
    found = [curvature(1.0), curvature(2.0), curvature(1.5)]
    assert decided([*found]) == (64, 8, round(64 * 0.5 * 0.96**2))


def test_an_undefined_ratio_repeats_the_last_one() -> None:
    assert decided([curvature(1.0), None]) == (64, round(64 * 0.96))


def test_a_tiny_study_runs_is_read_back_and_summed_up() -> None:
    scale = Subsampling(rounds=2, actors=2, epochs=1, sizes=(64, 512), products=(3,), draws=2)
    study = run(scale, seed=0)
    assert study.samples_per_round == 512
    ways = [(d.sampling, d.num_samples, d.converged) for d in study.detectors]
    assert ways == [
        ("proportional", 64, True),
        ("proportional", 512, True),
        ("even", 64, True),
        ("even", 512, True),
        ("proportional", 64, False),
        ("proportional", 512, False),
    ]
    for everything in (study.detectors[1], study.detectors[3]):
        assert everything.median_ratio_error == pytest.approx(0.0, abs=0.03)
    assert set(study.spread_of_draws) == {"proportional", "even"}
    assert all(spread > 0.0 for spread in study.spread_of_draws.values())
    assert all(8 <= count <= 64 for d in study.detectors for count in d.counts)
    assert Study.model_validate_json(study.model_dump_json()) == study
    found = find(Scale(seeds=1, quick=True), {CellId("detectors", "Hopper-v5", 0): study})
    assert len(found.tables[0].rows) == 4
    assert [panel.title for panel in found.panels][1:] == [
        "mean change (actors)",
        "actors that are asked for",
    ]
