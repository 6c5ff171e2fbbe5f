"""How alike the scores of several runs are."""

import pytest

from experiments.studies.paper.scores import mean_rank_correlation


def test_runs_with_the_same_order_are_alike_and_opposite_ones_are_not() -> None:
    up, steeper, down = [0.1, 0.2, 0.3], [0.1, 0.5, 0.9], [0.9, 0.5, 0.1]
    assert mean_rank_correlation([up, steeper]) == pytest.approx(1.0)
    assert mean_rank_correlation([up, down]) == pytest.approx(-1.0)
    # One pair is alike, two are opposite.
    assert mean_rank_correlation([up, steeper, down]) == pytest.approx(-1.0 / 3.0)


def test_rounds_without_a_difference_do_not_count() -> None:
    """All runs begin with the score of 1, decayed: that says nothing."""
    first = [1.0, 0.96, 0.92]
    one, other = [*first, 0.1, 0.2, 0.3], [*first, 0.9, 0.5, 0.1]
    assert mean_rank_correlation([one, other]) == pytest.approx(-1.0)


@pytest.mark.parametrize(
    "runs", [[], [[0.5, 0.4]], [[0.5, 0.4], [0.5, 0.4]], [[1.0, 1.0], [0.0, 0.5]]]
)
def test_nothing_to_compare_is_unknown(runs: list[list[float]]) -> None:
    assert mean_rank_correlation(runs) is None
