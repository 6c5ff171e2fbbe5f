from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from nitro.runs.curves import bootstrap, common_measure, curve, interval, recent_return, taken
from nitro.runs.reading import Run, read_run
from tests.nitro.synthetic_run import write_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Twelve rounds, evaluated after 0, 5, 10 and 12 of them."""
    return read_run(write_run(tmp_path, rounds=12))


def test_steps_and_dollars_are_those_of_the_rounds_before(run: Run) -> None:
    steps, dollars = taken(run)
    assert (steps[0], dollars[0]) == (0, 0.0)
    for updates in (1, 7):
        results = [line.result for line in run.rounds[:updates] if line.result]
        billed = [line.amount_usd for line in run.ledger if line.round < updates]
        assert steps[updates] == sum(result.env_steps for result in results)
        assert dollars[updates] == pytest.approx(sum(billed))
    assert len(steps) == len(dollars) == 13
    assert dollars[-1] == pytest.approx(sum(line.amount_usd for line in run.ledger))


def test_evaluations_stand_at_what_their_policy_had_taken(run: Run) -> None:
    steps, dollars = taken(run)
    found = curve(run, "evaluation")
    assert found.env_steps.tolist() == [steps[k] for k in (0, 5, 10, 12)]
    assert found.cost_usd.tolist() == [dollars[k] for k in (0, 5, 10, 12)]
    assert found.returns[-1] == pytest.approx(430.0)
    between = (found.returns[0] + found.returns[1]) / 2
    assert found.at_steps(steps[5] / 2) == pytest.approx(between)
    assert found.at_usd(dollars[5] / 2) == pytest.approx(between)
    assert found.at_steps(1e9) == found.returns[-1]


def test_training_returns_are_means_of_the_last_hundred_episodes(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, rounds=20))  # eight episodes a round
    episodes = [e for line in run.rounds if line.result for e in line.result.episode_returns]
    found = curve(run, "training")
    assert found.returns[0] == pytest.approx(np.mean(episodes[:8]))
    assert found.returns[-1] == pytest.approx(np.mean(episodes[-100:]))
    assert recent_return(line.result for line in run.rounds if line.result) == found.returns[-1]
    assert recent_return([]) is None


def test_runs_are_compared_by_training_where_one_was_not_evaluated(run: Run) -> None:
    unmeasured = replace(
        run, rounds=tuple(line.model_copy(update={"evaluation": None}) for line in run.rounds)
    )
    assert common_measure([run, run]) == "evaluation"
    assert common_measure([run, unmeasured]) == "training"


def test_the_interval_is_the_percentile_bootstrap_of_the_mean() -> None:
    values = np.random.default_rng(5).normal(2500.0, 300.0, size=8)
    found = interval(values.tolist())
    expected = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=50_000, rng=np.random.default_rng(1)
    ).confidence_interval
    assert found.mean == pytest.approx(values.mean())
    width = expected.high - expected.low
    assert found.low == pytest.approx(expected.low, abs=0.04 * width)
    assert found.high == pytest.approx(expected.high, abs=0.04 * width)
    assert found.count == 8
    assert interval(values.tolist()) == found


def test_the_interval_of_one_value_is_that_value() -> None:
    one = interval([7.0])
    assert (one.mean, one.low, one.high, one.count) == (7.0, 7.0, 7.0, 1)
    assert str(one) == "7.0"


def test_each_point_of_a_band_has_an_interval_of_its_own() -> None:
    values = np.array([[0.0, 10.0], [1.0, 10.0], [2.0, 10.0]])
    mean, low, high = bootstrap(values)
    assert mean.tolist() == [1.0, 10.0]
    assert low[0] < 1.0 < high[0]
    assert low[1] == pytest.approx(10.0)
    assert high[1] == pytest.approx(10.0)
