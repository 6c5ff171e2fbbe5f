"""When so many were last in use, beside a list of everything that was."""

import math

from hypothesis import given
from hypothesis import strategies as st

from services.scaler.launching.in_use import InUse


@given(st.lists(st.integers(0, 20), max_size=50))
def test_it_tells_what_a_list_of_everything_would(numbers: list[int]) -> None:
    in_use = InUse()
    for at, num in enumerate(numbers):
        in_use.note(num, float(at))
    for wanted in range(22):
        seen = [at for at, num in enumerate(numbers) if num >= wanted]
        assert in_use.last(wanted) == (float(seen[-1]) if seen else -math.inf)
