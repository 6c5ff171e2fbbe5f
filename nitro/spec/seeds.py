"""The seeds of several jobs, as typed: `5`, `1-5` or `1,3,7`."""

import re

from shared.contracts.job_spec import MAX_SEED

_PART = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?")


def parse_seeds(value: int | str, *, most: int) -> tuple[int, ...]:
    """Parse a number of seeds, or `1-5`, `1,3,7` or `1-3,9`.

    >>> parse_seeds("3", most=100), parse_seeds("0-1,9", most=100)
    ((1, 2, 3), (0, 1, 9))

    Args:
        value: A number N for seeds 1 to N, a range, or a list of seeds and ranges.
        most: Largest number of seeds; more is a typo.

    Raises:
        ValueError: The value is malformed, repeats a seed, or has a seed that is too large or too
            many seeds.
    """
    text = str(value).strip()
    if text.isdigit():
        if int(text) == 0:
            raise ValueError(f"a number of seeds starts at 1, got {value!r}; for seed 0 write 0-0")
        text = f"1-{text}"
    seeds: list[int] = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise ValueError(f"must look like 5, 1-5 or 1,3,7, got {value!r}")
        if len(seeds) + last - first >= most:
            raise ValueError(f"at most {most} at a time, got {value!r}")
        if last > MAX_SEED:
            raise ValueError(f"the largest possible seed is {MAX_SEED}, got {value!r}")
        seeds += range(first, last + 1)
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"repeats a seed, got {value!r}")
    return tuple(seeds)


def seed_count(number: int) -> str:
    """Return `1 seed` or `5 seeds`."""
    return f"{number} seed" if number == 1 else f"{number} seeds"
