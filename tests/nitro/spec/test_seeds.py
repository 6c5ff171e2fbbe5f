"""The seeds that a text names."""

import pytest

from nitro.spec.seeds import parse_seeds


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("3", (1, 2, 3)),
        ("2-4", (2, 3, 4)),
        ("4-4", (4,)),
        ("0-0", (0,)),
        ("1,7", (1, 7)),
        ("0-1, 9", (0, 1, 9)),
    ],
)
def test_a_number_counts_from_one_and_ranges_are_as_they_are(
    text: str, seeds: tuple[int, ...]
) -> None:
    assert parse_seeds(text, most=100) == seeds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "must look like") for text in ("", "five", "5-1", "1-", "-1", "1,,2")),
        ("0", "a number of seeds starts at 1, got '0'; for seed 0 write 0-0"),
        *((text, "repeats a seed") for text in ("1,1", "1-3,2")),
        *((text, "at most 100 at a time") for text in ("101", "1-999", "9999999999")),
        ("9999999999,1", "the largest possible seed"),
    ],
)
def test_anything_else_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_seeds(text, most=100)
