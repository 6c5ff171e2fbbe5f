"""A job as a user describes it, completed with the defaults of `nitro train` and `nitro.train`.

With the preset `paper`, the other defaults are those of `JobSpec`, as for the API.
"""

import math
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue, ValidationError

from nitro.errors import CommandError
from nitro.local.own_files import named_files
from nitro.spec.spec_file import JsonObject, merged, says, says_range, validated
from nitro.spec.starting_job import SEARCHES, StartingJob, starting_job
from nitro.spec.total_steps import has_known_rounds, planned_steps, rounds_for
from shared.contracts.job_spec import JobSpec
from shared.contracts.scaling_spec import POLICIES, ActorRange
from shared.contracts.stop_rule import MAX_ROUNDS, NO_CAP_USD
from shared.hyperparameters.presets import ALGORITHMS, Preset, resolve
from shared.hyperparameters.search import SearchHyperparameters

PRESET: Preset = "standard"
_EVALUATIONS = 20
"""Evaluations in a job, roughly: each takes as long as some rounds."""
_EPISODE_STEPS = 1000
"""Steps of a long episode: MuJoCo's limit."""


def train_spec(
    *,
    file: Path | None = None,
    options: Mapping[str, JsonValue],
    total_steps: int | None = None,
    here: bool = False,
) -> JobSpec:
    """Return the requested job, completed with the defaults.

    Args:
        file: YAML or JSON file with any of JobSpec's fields.
        options: Values by dotted path, such as `stop.max_rounds`; they win over the file.
        total_steps: Environment steps, instead of `stop.max_rounds`.
        here: Whether it runs on this machine, where the default is no cap.

    Raises:
        CommandError: Some fields are wrong; one line each.
    """
    raw = merged(file=file, options=options)
    _name_files(raw)
    if here:
        _lift_cap(raw)
    rounds_said = says(raw, "stop", "max_rounds")
    if total_steps is not None and rounds_said:
        raise CommandError("--total-steps: give it or --rounds, not both")
    completed = raw.setdefault("preset", PRESET) == PRESET
    if completed:
        _fix_rounds(raw)
        _fix_hyperparameters(raw)
    spec = validated(raw)
    if spec.learner == "external":
        raise CommandError(
            "learner: external is for your own program with nitro.ActorPool: nothing would train "
            "this job"
        )
    if total_steps is None and not rounds_said:
        total_steps = spec.stop.max_env_steps or _usual_steps(spec, completed=completed)
    if total_steps is not None:
        _lasts(raw, spec, total_steps)
        spec = validated(raw)
    if completed and not says(raw, "evaluation", "every_rounds"):
        every = math.ceil(_expected_rounds(spec) / _EVALUATIONS)
        _say(raw, "evaluation", "every_rounds", every)
        spec = validated(raw)
    return spec


def _usual_steps(spec: JobSpec, *, completed: bool) -> int | None:
    """Return how many steps a job has that says nothing of it; None if its rounds decide."""
    if not completed or not (spec.searches or planned_steps(spec)):
        return None
    return starting_job(spec.env_id, spec.algorithm).total_steps


def _lasts(raw: JsonObject, spec: JobSpec, total_steps: int) -> None:
    """Have a job last so many steps: by its rounds, if the steps of these are known."""
    by_steps = not has_known_rounds(spec) and spec.stop.max_env_steps == total_steps
    if spec.searches:
        by_steps = True
        _say(raw, "stop", "max_env_steps", total_steps)
    _say(raw, "stop", "max_rounds", MAX_ROUNDS if by_steps else rounds_for(spec, total_steps))


def _expected_rounds(spec: JobSpec) -> int:
    """Return about how many rounds a job has; episodes of a search are taken to be long."""
    rounds, steps = spec.stop.max_rounds, spec.stop.max_env_steps
    if steps is None:
        return rounds
    try:
        rule = resolve(spec.algorithm, spec.preset, spec.hyperparameters)
    except ValidationError:  # admission says what is wrong
        return rounds
    if not isinstance(rule, SearchHyperparameters):
        return rounds
    episodes = rule.most_iterations * rule.num_episodes
    return min(rounds, math.ceil(steps / (episodes * _EPISODE_STEPS)))


def _name_files(raw: JsonObject) -> None:
    kwargs = raw.get("env_kwargs")
    if isinstance(kwargs, dict):
        raw["env_kwargs"] = named_files(kwargs)


def _lift_cap(raw: JsonObject) -> None:
    """Remove the default cap of a job, unless its policy divides the budget."""
    if not says(raw, "stop", "budget_usd") and _policy(raw) != "minionsrl":
        _say(raw, "stop", "budget_usd", NO_CAP_USD)


def _fix_rounds(raw: JsonObject) -> None:
    """Set the default samples and actors of a round."""
    usual = starting_job(str(raw.get("env_id", JobSpec().env_id)), str(raw.get("algorithm")))
    algorithm = ALGORITHMS.get(str(raw.get("algorithm", JobSpec().algorithm)))
    searches = algorithm is not None and algorithm.searches
    if not searches and "steps_per_actor" not in raw and "samples_per_round" not in raw:
        if algorithm is not None and algorithm.on_policy and not _decides_samples(raw):
            raw["samples_per_round"] = usual.samples_per_round
        else:  # otherwise it would mix fragments, which must have equal lengths
            raw["steps_per_actor"] = usual.samples_per_round // usual.num_actors
    scaling = raw.get("scaling", {})
    if isinstance(scaling, dict) and scaling.keys() <= {"num_actors"}:
        if scaling or not says_range(raw):
            raw["scaling"] = {"policy": "fixed", "num_actors": usual.num_actors, **scaling}
            if not scaling:
                raw["actors"] = {**_group(raw, "actors"), **_range_around(usual, searches=searches)}
        if "samples_per_round" in raw and not says(raw, "episodes", "resize"):
            _say(raw, "episodes", "resize", True)


def _range_around(usual: StartingJob, searches: bool) -> JsonObject:
    """Return the fields of `actors` that must differ for a job's number to lie inside.

    Fewer actors of a search would have more episodes each, perhaps too many for their time.
    """
    number, default = usual.num_actors, ActorRange()
    least = number if searches else min(number, default.min)
    return {
        **({} if least == default.min else {"min": least}),
        **({} if number <= default.max else {"max": number}),
    }


def _fix_hyperparameters(raw: JsonObject) -> None:
    """Set the values with which this kind of environment learns better than with the preset."""
    said, algorithm = raw.get("hyperparameters", {}), raw.get("algorithm", "ppo")
    if algorithm in ("ppo", *SEARCHES) and isinstance(said, dict):
        env_id = str(raw.get("env_id", JobSpec().env_id))
        usual = starting_job(env_id, str(algorithm)).hyperparameters
        raw["hyperparameters"] = {**usual, **said}


def _policy(raw: JsonObject) -> object:
    scaling = raw.get("scaling")
    return scaling.get("policy") if isinstance(scaling, dict) else scaling


def _decides_samples(raw: JsonObject) -> bool:
    name = _policy(raw)
    return name in POLICIES and POLICIES[str(name)].decides_samples


def _say(raw: JsonObject, group: str, field: str, value: JsonValue) -> None:
    before = raw.get(group, {})
    if isinstance(before, dict):  # validation refuses anything else
        raw[group] = {**before, field: value}


def _group(raw: JsonObject, group: str) -> JsonObject:
    before = raw.get(group)
    return before if isinstance(before, dict) else {}
