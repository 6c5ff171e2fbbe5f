"""The number of steps to a return with ARS: measured here, otherwise published.

A measured run tells only its return at the end, so its steps are an upper bound. The published
numbers are those of Mania, Guy and Recht, "Simple random search provides a competitive approach to
reinforcement learning", arXiv 1803.07055, table 1, ARS V2-t: the mean number of episodes until a
threshold, over three seeds. Swimmer's is left out: Nitro trains it with other values.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from pydantic import BaseModel, Json, ValidationError

from nitro.errors import CommandError
from nitro.planning.known_steps import KnownSteps, result_files
from nitro.spec.starting_job import starting_job
from shared.contracts.job_spec import JobSpec
from shared.hyperparameters.common import Hyperparameters
from shared.hyperparameters.presets import HyperparameterValue, resolve

_FIX = "give --total-steps"
_LONGEST = 1000
"""Steps of the longest episode of the published tasks."""


@dataclass(frozen=True, slots=True)
class _Published:
    episodes: int
    threshold: float


_TABLE_1: Mapping[str, _Published] = {
    "Hopper-": _Published(1_973, 3_120.0),
    "HalfCheetah-": _Published(1_707, 3_430.0),
    "Walker2d-": _Published(24_000, 4_390.0),
    "Ant-": _Published(20_800, 3_580.0),
    "Humanoid-": _Published(142_600, 6_000.0),
}
"""By prefix of the environment's name."""


class _Settings(BaseModel):
    hyperparameters: dict[str, HyperparameterValue]


class _Run(BaseModel):
    """A row of `benchmarks/results/first_results_ars.jsonl`."""

    env_id: str
    contestant: Literal["nitro"]
    steps: int
    settings: Json[_Settings]
    returns: list[float]
    """Of the trained policy's episodes."""


def search_steps_to_return(
    spec: JobSpec, target: float, *, episode_steps: int | None = None
) -> KnownSteps:
    """Return the steps after which a search's return is at least the target.

    Args:
        spec: The job.
        target: The return.
        episode_steps: Mean steps of an episode, which turn published episodes into steps; None: as
            many as an episode may have.

    Raises:
        CommandError: Nothing is known of such a job; gives advice.
    """
    if spec.algorithm != "ars":
        raise CommandError(f"--to-return: no recorded run is of {spec.algorithm}: {_FIX}")
    if spec.env_kwargs or spec.resolved().episodes.horizon != "limit":
        raise CommandError(
            "--to-return: known runs of ars are of whole episodes in unchanged environments. Leave "
            f"out `env_kwargs` and `episodes.horizon`, or {_FIX}"
        )
    found = _measured(spec, target) or _published(spec, target, episode_steps)
    if found is None:
        raise CommandError(_unknown(spec, target))
    return found


def _measured(spec: JobSpec, target: float) -> KnownSteps | None:
    """Return the fewest steps after which the median recorded run is at the target."""
    finals = defaultdict[tuple[str, int], list[float]](list)
    for name, text in result_files("*_ars.jsonl", spec.env_id):
        for line in text.splitlines():
            try:
                run = _Run.model_validate_json(line)
            except ValidationError:
                continue  # a row of another contestant
            if run.env_id == spec.env_id and _rule(spec, run.settings.hyperparameters) == _rule(
                spec, spec.hyperparameters
            ):
                finals[name, run.steps].append(fmean(run.returns))
    for (name, steps), returns in sorted(finals.items(), key=lambda item: item[0][1]):
        if median(returns) >= target:
            reached = sum(each >= target for each in returns)
            return KnownSteps(
                steps,
                f"{reached} of {len(returns)} runs had it after {steps:,} steps ({name}). An upper "
                "bound, as only their ends were measured",
            )
    return None


def _published(spec: JobSpec, target: float, episode_steps: int | None) -> KnownSteps | None:
    known = _table_1(spec.env_id)
    if known is None or target > known[1].threshold or not _has_own_values(spec):
        return None
    task, row = known
    each = min(episode_steps or _LONGEST, _LONGEST)
    return KnownSteps(
        row.episodes * each,
        f"{row.episodes:,} episodes, here of {each:,} steps, to {row.threshold:,g} on {task}v1 "
        "(arXiv 1803.07055, table 1, mean of three seeds). Published, not reproduced here",
    )


def _unknown(spec: JobSpec, target: float) -> str:
    """Return what is not known, and what to do."""
    known = _table_1(spec.env_id)
    if known is not None and not _has_own_values(spec):
        return (
            f"--to-return: known runs of ars in {spec.env_id} have other hyper-parameters. Leave "
            f"yours out, or {_FIX}"
        )
    if known is not None:
        return (
            f"--to-return: no run of ars in {spec.env_id} is known to reach {target:g}; published "
            f"is {known[1].threshold:g}. Use a lower return, or {_FIX}"
        )
    return (
        f"--to-return: no run of ars in {spec.env_id} is known to reach {target:g} with these "
        f"hyper-parameters: {_FIX}"
    )


def _table_1(env_id: str) -> tuple[str, _Published] | None:
    return next((item for item in _TABLE_1.items() if env_id.startswith(item[0])), None)


def _has_own_values(spec: JobSpec) -> bool:
    """Whether a job has the hyper-parameters with which its task is trained by default."""
    own = starting_job(spec.env_id, spec.algorithm).hyperparameters
    typed = _Settings.model_validate({"hyperparameters": own}).hyperparameters
    return _rule(spec, typed) == _rule(spec, spec.hyperparameters)


def _rule(spec: JobSpec, values: Mapping[str, HyperparameterValue]) -> Hyperparameters:
    """Return all hyper-parameters; `iterations` is always 1, as it does not change the weights."""
    return resolve(spec.algorithm, spec.preset, {**values, "iterations": 1})
