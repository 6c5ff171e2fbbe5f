"""The bound on staleness, update by update."""

import math

import pytest

from learning.aggregation.threshold import StalenessBound


def bounds(form: str, calibration: list[int], *, decay: float, updates: int) -> list[float]:
    bound = StalenessBound(form=form, decay=decay)  # type: ignore[arg-type]
    assert math.isinf(bound.beta)
    bound = bound.after([0, 0, 0])  # an update without staleness shows nothing
    assert math.isinf(bound.beta)
    assert math.isinf(bound.oldest)
    bound = bound.after(calibration)
    found = []
    for _ in range(updates):
        found.append(bound.beta)
        bound = bound.after([9, 9])  # later updates do not count
    return found


def test_the_papers_form_begins_at_the_largest_and_falls_to_one() -> None:
    found = bounds("paper", [0, 1, 4, 3], decay=0.5, updates=4)
    assert found == [2.0, 1.0, 1.0, 1.0]


def test_the_codes_form_begins_at_the_mean_rounded_up() -> None:
    # int(2.6) + 1 = 3, then int(3 * 0.9^(k-1)) + 1 within [1, 3].
    found = bounds("code", [2, 2, 3, 3, 3], decay=0.9, updates=13)
    assert found == [3.0] * 4 + [2.0] * 7 + [1.0] * 2


def test_without_a_threshold_there_is_no_bound() -> None:
    bound = StalenessBound(form="off", decay=0.9).after([3, 3])
    assert math.isinf(bound.beta)
    assert math.isinf(bound.oldest)


@pytest.mark.parametrize("form", ["paper", "code"])
def test_what_is_older_than_the_first_bound_is_a_straggler(form: str) -> None:
    bound = StalenessBound(form=form, decay=0.9).after([2, 2])  # type: ignore[arg-type]
    assert bound.oldest == (2.0 if form == "paper" else 3.0)
    assert bound.after([1]).oldest == bound.oldest
