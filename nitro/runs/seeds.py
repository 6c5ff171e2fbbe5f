"""The result of several seeds of one job: each seed's return, their mean and its interval."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from rich.console import Group, RenderableType
from rich.table import Table

from nitro.hints import near
from nitro.runs.curves import FEWEST_FOR_INTERVAL, Interval, interval
from nitro.runs.summary import Summary, duration, number
from nitro.spec.seeds import seed_count
from nitro.tables import columns_table, facts_table

_NUMBERS = frozenset({"seed", "rounds", "steps", "final", "best", "training", "time", "USD"})


class SeedSummary(Summary):
    """One seed, with the fields of `nitro train --json` and two more."""

    seed: int
    training_return: float | None
    """Mean of the last 100 training episodes."""


class SeedsSummary(BaseModel):
    """All seeds; the fields are the keys of `nitro train --seeds --json`."""

    model_config = ConfigDict(frozen=True)

    env_id: str
    algorithm: str
    preset: str
    seeds: list[SeedSummary]
    """In the order of the command line."""
    final_return: Interval | None
    """Of the last evaluations, over seeds with an evaluation."""
    best_return: Interval | None
    training_return: Interval | None
    cost_usd: float
    """Projected cost on AWS of all seeds."""


def sum_up(
    seeds: Sequence[SeedSummary], *, env_id: str, algorithm: str, preset: str
) -> SeedsSummary:
    """Summarise seeds of one job."""
    return SeedsSummary(
        env_id=env_id,
        algorithm=algorithm,
        preset=preset,
        seeds=list(seeds),
        final_return=_over([each.final_return for each in seeds]),
        best_return=_over([each.best_return for each in seeds]),
        training_return=_over([each.training_return for each in seeds]),
        cost_usd=sum(each.projected.cost_usd for each in seeds),
    )


def _over(values: Sequence[float | None]) -> Interval | None:
    known = [value for value in values if value is not None]
    return interval(known) if known else None


def seeds_table(summary: SeedsSummary, *, picture: Path | None, width: int) -> RenderableType:
    """Format seeds for people: a line per seed, and their summary.

    Args:
        summary: The seeds' results.
        picture: Path of the picture of all seeds.
        width: Characters per line.
    """
    seeds = summary.seeds
    columns: dict[str, Sequence[str]] = {
        "seed": [str(each.seed) for each in seeds],
        "run": [each.job_id for each in seeds],
        "status": [each.status for each in seeds],
        "final": [number(each.final_return) for each in seeds],
        "best": [number(each.best_return) for each in seeds],
        "training": [number(each.training_return) for each in seeds],
        "steps": [f"{each.env_steps:,}" for each in seeds],
        "rounds": [str(each.rounds) for each in seeds],
        "time": [duration(each.wall_s) for each in seeds],
        "USD": [f"{each.projected.cost_usd:.4f}" for each in seeds],
    }
    table = columns_table(columns, numbers=_NUMBERS, uncut=6, width=width)
    return Group(table, "", _together(summary, picture))


def _together(summary: SeedsSummary, picture: Path | None) -> Table:
    seeds = summary.seeds
    returns = {
        "final return": (summary.final_return, [each.final_return for each in seeds]),
        "best return": (summary.best_return, [each.best_return for each in seeds]),
        "training return": (summary.training_return, [each.training_return for each in seeds]),
    }
    means = [
        (f"mean {name}", _told(found, [each for each in values if each is not None], summary))
        for name, (found, values) in returns.items()
        if found
    ]
    return facts_table(
        [
            ("job", f"{summary.env_id}, {summary.algorithm} ({summary.preset})"),
            *means,
            ("cost (projected)", f"{summary.cost_usd:.4f} USD"),
            *((("picture", near(picture)),) if picture else ()),
        ]
    )


def _told(found: Interval, values: Sequence[float], summary: SeedsSummary) -> str:
    some = "" if found.count == len(summary.seeds) else f" of {len(summary.seeds)}"
    of = f"{found.count}{some} seeds" if some else seed_count(found.count)
    if 1 < found.count < FEWEST_FOR_INTERVAL:
        return f"{found} of {', '.join(map(number, values))} ({of})"
    return f"{found}, {of}"
