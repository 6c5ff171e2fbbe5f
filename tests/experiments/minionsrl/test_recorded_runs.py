"""The stand-in for training runs: its fits against NumPy, its episodes by their rules."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.minionsrl.episode import round_rewards
from experiments.minionsrl.practice_runs import read_runs
from experiments.minionsrl.recorded_runs import RecordedRuns, fitted_curve, fitted_line
from nitro.runs.reading import Run, read_run
from shared.contracts.job_spec import JobSpec
from tests.nitro.synthetic_run import write_run
from tests.services.scaler.scaling.seen import biased_agent

POINTS = st.lists(
    st.tuples(st.integers(1, 64).map(float), st.floats(0.0, 100.0)), min_size=2, max_size=20
)
ALWAYS_MOST = biased_agent(*(0.0,) * 63, 99.0)
ALWAYS_ONE = biased_agent(99.0, *(0.0,) * 63)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("recorded")
    write_run(folder, rounds=30)
    return read_runs(folder)


def spec(**changes: object) -> JobSpec:
    stop = {"max_rounds": 12, **changes}
    return JobSpec.model_validate({"stop": stop, "evaluation": {"every_rounds": 3}})


@given(points=POINTS)
def test_lines_are_numpys_least_squares_where_those_rise(points: list[tuple[float, float]]) -> None:
    line = fitted_line(points)
    xs, ys = np.array(points).T
    if len(set(xs)) > 1 and np.polyfit(xs, ys, 1)[0] > 1e-6:
        assert (line.slope, line.intercept) == pytest.approx(
            tuple(np.polyfit(xs, ys, 1)), rel=1e-6, abs=1e-6
        )
    assert line.slope >= 0
    assert line.at(-1e9) >= 0


def test_a_curve_goes_through_the_means_of_stretches_and_is_flat_outside() -> None:
    points = [(0.0, 1.0), (0.0, 3.0), (100.0, 10.0), (1000.0, 30.0), (1000.0, 34.0)]
    curve = fitted_curve(points)
    assert (curve.steps, curve.returns) == ((0.0, 100.0, 1000.0), (2.0, 10.0, 32.0))
    for steps in (-5.0, 0.0, 37.0, 100.0, 999.0, 1000.0, 1e9):
        assert curve.at(steps) == pytest.approx(np.interp(steps, curve.steps, curve.returns))
    residuals = [-1.0, 1.0, 0.0, -2.0, 2.0]
    assert curve.spread == pytest.approx(np.std(residuals))


def test_a_run_without_steps_has_a_level_curve() -> None:
    assert fitted_curve([(0.0, 1.0), (0.0, 3.0)]).at(1e6) == 2.0


def test_where_rounds_overlap_a_return_is_worth_the_steps_its_policy_learned_from(
    tmp_path: Path,
) -> None:
    run = read_run(write_run(tmp_path, rounds=12, overlap=2, batches=4))
    steps = [line.result.env_steps for line in run.rounds if line.result]
    model = RecordedRuns([run], spec(), seed=0)
    assert model.curve.steps == tuple(float(sum(steps[:learned])) for learned in (0, 3, 8, 12))


def test_more_actors_cost_more_and_learn_more_in_a_round(runs: list[Run]) -> None:
    model = RecordedRuns(runs, spec(), seed=0)
    most, one = model.play(ALWAYS_MOST, 0), model.play(ALWAYS_ONE, 0)
    assert set(most.choices) == {64}
    assert set(one.choices) == {1}
    assert len(most.states) == len(one.states) == 12
    assert most.cost_usd > one.cost_usd
    assert most.best_return is not None
    assert one.best_return is not None
    assert most.best_return > one.best_return


def test_equal_indices_give_equal_episodes(runs: list[Run]) -> None:
    model, anything = RecordedRuns(runs, spec(), seed=4), biased_agent(*(0.0,) * 64)
    assert model.play(anything, 3) == model.play(anything, 3)
    assert model.play(anything, 3) != model.play(anything, 4)


def test_an_episode_ends_by_budget_or_target(runs: list[Run]) -> None:
    budget_usd = 0.02
    poor = RecordedRuns(runs, spec(budget_usd=budget_usd), seed=0).play(ALWAYS_MOST, 0)
    assert 1 <= len(poor.states) < 12
    assert poor.cost_usd <= budget_usd
    easy = RecordedRuns(runs, spec(target_return=-1000.0), seed=0).play(ALWAYS_MOST, 0)
    assert len(easy.states) == 1


def test_states_are_what_came_before(runs: list[Run]) -> None:
    episode = RecordedRuns(runs, spec(), seed=0).play(ALWAYS_MOST, 0)
    first, second = episode.states[:2]
    assert first.vector[:7] == (0.0,) * 7
    assert first.remaining_usd == 5.0
    assert second.round_s == second.learner_s + second.actor_s > 0
    assert second.remaining_usd < 5.0
    assert [state.round_index for state in episode.states] == list(range(12))


def test_scales_bring_every_number_near_one(runs: list[Run]) -> None:
    model = RecordedRuns(runs, spec(), seed=0)
    episode = model.play(ALWAYS_MOST, 0)
    scaled = np.array([state.vector for state in episode.states]) / np.array(model.scales)
    assert np.abs(scaled).max() < 3


@pytest.mark.parametrize(
    ("best", "target", "expected"),
    [
        (50.0, 80.0, (-0.1, -0.2 - 30.0)),
        (90.0, 80.0, (-0.1, -0.2)),
        (None, 80.0, (-0.1, -0.2)),
        (50.0, None, (-0.1, -0.2)),
    ],
)
def test_rewards_by_hand(
    best: float | None, target: float | None, expected: tuple[float, float]
) -> None:
    rewards = round_rewards([1.0, 2.0], best_return=best, target_return=target)
    assert rewards == pytest.approx(expected)
    assert round_rewards([], best_return=best, target_return=target) == ()
