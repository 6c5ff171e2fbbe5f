"""First results beside Stable-Baselines3's: one line of JSON a run, and the table made of them."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal

from benchmarks.environment import Environment
from nitro.runs.curves import Interval, interval
from nitro.spec.starting_job import StartingJob
from shared.contracts.message import Count, Message, NonNegativeFloat, Number, PositiveInt

ContestantName = Literal["nitro", "stable-baselines3"]
Verdict = Literal["better", "level", "worse", "unknown"]
_USUAL_ACTORS = StartingJob().num_actors
_FEWEST_SEEDS = 3
"""With fewer, an interval says nothing about other seeds."""


class FirstResult(Message):
    """The outcome of one seed of one contestant."""

    env_id: str
    contestant: ContestantName
    seed: Count
    steps: PositiveInt
    """That were asked for; both contestants round them up to whole rounds of 2,048."""
    settings: str = ""
    """JSON of what tells a job of ours from others: another preset's values, other rounds."""
    returns: tuple[Number, ...]
    """Of deterministic episodes with the policy of the last update."""
    env_steps: PositiveInt
    train_s: NonNegativeFloat
    about: dict[str, str] = {}
    """Versions, as a contestant in a process of its own reports them."""
    environment: Environment

    @property
    def mean_return(self) -> float:
        """The seed's result."""
        return fmean(self.returns)

    @property
    def key(self) -> tuple[str, str, int, int, str]:
        """The identity of a run."""
        return (self.env_id, self.contestant, self.seed, self.steps, self.settings)


class Comparison(Message):
    """One environment's seeds, ours beside theirs."""

    env_id: str
    steps: PositiveInt
    ours: tuple[FirstResult, ...]
    theirs: tuple[FirstResult, ...]

    @property
    def verdict(self) -> Verdict:
        """How our interval lies to theirs; unknown with fewer than three seeds on either side."""
        if min(len(self.ours), len(self.theirs)) < _FEWEST_SEEDS:
            return "unknown"
        ours, theirs = spread(self.ours), spread(self.theirs)
        if ours.high < theirs.low:
            return "worse"
        return "better" if ours.low > theirs.high else "level"


def read_results(path: Path) -> list[FirstResult]:
    """Return the runs made so far; of equal ones the newest."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    found = (FirstResult.model_validate_json(line) for line in lines)
    return [*{result.key: result for result in found}.values()]


def append_result(path: Path, result: FirstResult) -> None:
    """Add a run to those made so far."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(result.model_dump_json() + "\n")


def spread(results: Sequence[FirstResult]) -> Interval:
    """Return the mean over seeds with its interval."""
    return interval([result.mean_return for result in results])


def comparisons(results: Iterable[FirstResult]) -> list[Comparison]:
    """Return one comparison for each environment, in the order of their first runs.

    Where a job of ours was changed, the settings of its newest run count, with all their seeds.
    """
    by_env: dict[tuple[str, int], list[FirstResult]] = {}
    for result in results:
        by_env.setdefault((result.env_id, result.steps), []).append(result)
    return [
        Comparison(
            env_id=env_id,
            steps=steps,
            ours=_newest(result for result in found if result.contestant == "nitro"),
            theirs=_newest(result for result in found if result.contestant != "nitro"),
        )
        for (env_id, steps), found in by_env.items()
    ]


def _newest(results: Iterable[FirstResult]) -> tuple[FirstResult, ...]:
    found = [*results]
    newest = [result for result in found if result.settings == found[-1].settings]
    return tuple(sorted(newest, key=lambda result: result.seed))


def markdown_table(compared: Sequence[Comparison]) -> str:
    """Lay the comparisons out for a page."""
    lines = [
        "| environment | steps | Nitro: mean (seeds) | Stable-Baselines3: mean (seeds) | |",
        "|---|--:|---|---|---|",
    ]
    lines += [
        f"| `{each.env_id}` | {each.steps:,} | {_cell(each.ours)} | {_cell(each.theirs)} "
        f"| {each.verdict} |"
        for each in compared
    ]
    return "\n".join(lines)


def tried_table(results: Iterable[FirstResult]) -> str:
    """Lay out what was tried for our job: one line for an environment and its hyper-parameters."""
    by_values: dict[tuple[str, int, str], list[FirstResult]] = {}
    for result in results:
        settings = json.loads(result.settings)
        values = settings["hyperparameters"]
        if (num_actors := settings["scaling"]["num_actors"]) != _USUAL_ACTORS:
            values = {"num_actors": num_actors, **values}
        told = ", ".join(f"`{name}={json.dumps(value)}`" for name, value in values.items())
        by_values.setdefault((result.env_id, result.steps, told), []).append(result)
    lines = ["| environment | steps | beyond `standard` | mean (seeds) |", "|---|--:|---|---|"]
    lines += [
        f"| `{env_id}` | {steps:,} | {told or 'nothing'} | {_cell(found)} |"
        for (env_id, steps, told), found in sorted(by_values.items())
    ]
    return "\n".join(lines)


def _cell(results: Sequence[FirstResult]) -> str:
    if not results:
        return "not run"
    seeds = ", ".join(_number(result.mean_return) for result in results)
    return f"**{_number(spread(results).mean)}** ({seeds})"


def _number(value: float) -> str:
    whole = 100
    text = f"{value:,.0f}" if abs(value) >= whole else f"{value:.1f}"
    return "0.0" if text == "-0.0" else text.replace("-", "−")
