"""Numbers of a step: whether all are finite, wherever they are."""

import numpy as np
import pytest

from functions.actor.finite import all_finite


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 8, 16])
def test_one_number_that_is_not_finite_is_found_anywhere(wrong: float, place: int) -> None:
    numbers = np.full((1, 17), np.finfo(np.float32).max, np.float32)
    assert all_finite(numbers)
    numbers[0, place] = wrong
    with np.errstate(all="ignore"):
        assert not all_finite(numbers)
