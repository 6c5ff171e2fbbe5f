"""The noise scale against its definition, and a small run."""

import numpy as np
import pytest

from experiments.catalogue import load
from experiments.grid import Scale
from experiments.outcome import JobOutcome
from experiments.studies.searches.population_player import Average, noise
from shared.contracts.rounds import GradientNoise


def test_noise_is_the_trace_of_the_covariance_and_the_square_of_the_mean_without_its_share() -> (
    None
):
    rng = np.random.default_rng(0)
    differences, directions = rng.standard_normal(7), rng.standard_normal((7, 3))
    gradients = [r * d / (2 * 0.5) for r, d in zip(differences, directions, strict=True)]
    variance = float(np.trace(np.cov(np.transpose(gradients), ddof=1)))
    found = noise(differences, directions, 0.5)
    assert found is not None
    assert found.variance == pytest.approx(variance)
    squared = float(np.linalg.norm(np.mean(gradients, axis=0)) ** 2)
    assert found.squared_norm == pytest.approx(squared - variance / 7)
    assert noise(differences[:1], directions[:1], 0.5) is None


def test_without_noise_in_returns_the_scale_is_one_more_than_the_weights() -> None:
    """Isserlis: the variance of (a d) d over normal d is (n + 1) |a|^2 in all."""
    directions = np.random.default_rng(0).standard_normal((100_000, 5))
    gradient = np.array([1.0, -2.0, 0.5, 0.0, 3.0])
    found = noise(2 * 0.1 * directions @ gradient, directions, 0.1)
    assert found is not None
    assert found.variance / found.squared_norm == pytest.approx(6.0, rel=0.05)


def test_averages_are_divided_and_a_gradient_that_is_lost_in_noise_has_no_scale() -> None:
    average = Average()
    assert average.including(GradientNoise(variance=3.0, squared_norm=-1.0)) is None
    assert average.including(None) is None
    found = average.including(GradientNoise(variance=6.0, squared_norm=2.0))
    assert found == pytest.approx((0.9 * 3 + 6) / (0.9 * -1 + 2))


def test_a_small_run_has_an_actor_for_each_episode_and_equal_runs_are_equal() -> None:
    experiment, scale = load("population"), Scale(seeds=1, quick=True)
    cells = experiment.plan(scale, {}).cells
    assert experiment.work is not None
    done = {cell.id: experiment.work(cell) for cell in cells}
    fixed, adaptive = done.values()
    assert isinstance(fixed, JobOutcome)
    assert isinstance(adaptive, JobOutcome)
    assert {each.num_actors for each in fixed.rounds} == {4}
    assert all(4 <= each.num_actors <= 64 for each in adaptive.rounds)
    assert fixed.rounds[0] == adaptive.rounds[0]
    assert fixed.env_steps == 1000 * sum(each.num_actors for each in fixed.rounds)
    assert len(experiment.find(scale, done).claims) == 2
