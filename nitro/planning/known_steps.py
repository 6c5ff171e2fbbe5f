"""The number of steps to a return, from reference runs in the source tree."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from pydantic import BaseModel, ValidationError

from nitro.errors import CommandError
from shared.contracts.job_spec import JobSpec

Curve = Sequence[tuple[int, float]]
"""Steps and mean returns, ascending in steps."""


class _Seed(BaseModel):
    curve: list[tuple[int, float]]


class _Actors(BaseModel):
    min: int
    max: int


class _Episodes(BaseModel):
    horizon: int | str | None = None


class _Job(BaseModel):
    """Fields of a recorded job, which may lack newer fields."""

    preset: str
    actors: _Actors
    episodes: _Episodes = _Episodes()

    def __str__(self) -> str:
        few, many = self.actors.min, self.actors.max
        horizon = self.episodes.horizon or "unknown"
        return f"preset {self.preset}, {few} to {many} actors, horizon {horizon}"


class _Recorded(BaseModel):
    env_id: str
    spec: _Job
    seeds: list[_Seed]

    def likeness(self, spec: JobSpec) -> tuple[int, int]:
        """Return the number of fields in common with a job, and the number of seeds."""
        asked, actors = spec.resolved(), self.spec.actors
        alike = (
            self.spec.preset == asked.preset,
            self.spec.episodes.horizon == asked.episodes.horizon,
            (actors.min, actors.max) == (asked.actors.min, asked.actors.max),
        )
        return sum(alike), len(self.seeds)


@dataclass(frozen=True, slots=True)
class KnownSteps:
    """The number of steps to a return."""

    steps: int
    source: str
    """The source of the number, in words."""


def steps_to_return(spec: JobSpec, target: float) -> KnownSteps:
    """Return the steps after which the median recorded seed first reached a return.

    The source is the recorded runs of the environment that are closest to the job in preset,
    training horizon and actors; ties go to the most seeds.

    Raises:
        CommandError: No run is recorded, or most seeds never reached the return; gives advice.
    """
    env_id = spec.env_id
    found = max(_recorded(env_id), key=lambda each: each[1].likeness(spec), default=None)
    if found is None:
        raise CommandError(
            f"--to-return: no recorded run of {env_id} shows the steps to a return of {target:g}; "
            "give --total-steps instead"
        )
    name, recorded = found
    curves = [seed.curve for seed in recorded.seeds]
    source = f"{name} ({len(curves)} runs, {recorded.spec})"
    reached = sorted(steps for steps in (first_at(curve, target) for curve in curves) if steps)
    if 2 * len(reached) <= len(curves):
        best = median(max(mean for _, mean in curve) for curve in curves)
        raise CommandError(
            f"--to-return: {len(reached)} of {len(curves)} recorded runs of {env_id} reached a "
            f"return of {target:g}; the median run's best is {best:.0f}. Use a lower return, or "
            f"give --total-steps. The runs are those of {source}"
        )
    missing = [max(reached)] * (len(curves) - len(reached))  # later, and never the median
    return KnownSteps(int(median([*reached, *missing])), source)


def first_at(curve: Curve, target: float) -> int | None:
    """Return the steps after which a curve first reaches a return; None if it never does.

    The return of the untrained policy does not count.

    >>> first_at([(0, 6.0), (1000, 3.0), (2000, 8.0)], 5.0)
    2000
    """
    return next((steps for steps, mean in curve if steps and mean >= target), None)


def _recorded(env_id: str) -> Iterator[tuple[str, _Recorded]]:
    """Yield the recorded runs of an environment, by the names of their files in the source tree."""
    for name, text in result_files("*.json", env_id):
        try:
            recorded = _Recorded.model_validate_json(text)
        except ValidationError:
            continue  # a file of another form
        seeds = [seed for seed in recorded.seeds if seed.curve]
        if recorded.env_id == env_id and seeds:
            yield name, recorded.model_copy(update={"seeds": seeds})


def result_files(pattern: str, env_id: str) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the files in the source tree that name an environment."""
    found = find_spec("benchmarks")
    for folder in map(Path, (found and found.submodule_search_locations) or ()):
        for path in sorted((folder / "results").rglob(pattern)):
            text = path.read_text("utf-8")
            if json.dumps(env_id) in text:
                yield path.relative_to(folder.parent).as_posix(), text
