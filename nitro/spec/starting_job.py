"""The defaults of `nitro train` and `nitro.train`.

They are chosen to learn well on one machine within minutes (decision 030). With the preset `paper`,
the other defaults are those of `JobSpec`, as for the API.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import JsonValue

from nitro.errors import CommandError
from nitro.local.own_files import named_files
from nitro.spec.spec_file import JsonObject, merged, says, says_range, validated
from nitro.spec.total_steps import planned_steps, rounds_for
from shared.contracts.job_spec import NO_CAP_USD, JobSpec
from shared.contracts.scaling_spec import POLICIES
from shared.hyperparameters.presets import ALGORITHMS, Preset

PRESET: Preset = "standard"
_EVALUATIONS = 20
"""Evaluations in a job, roughly: each takes as long as some rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingJob:
    """The length of training on an environment, and its rounds."""

    total_steps: int = 1_000_000
    samples_per_round: int = 2048
    """The setting that the preset `standard` is tuned for."""
    num_actors: int = 8
    hyperparameters: Mapping[str, JsonValue] = field(default_factory=dict)
    """Hyper-parameters of PPO that replace the preset's."""
    reason: str = ""
    """Their source, as shown by `nitro presets ENV`."""


_QUICK = StartingJob(total_steps=200_000)
_DISCRETE = replace(
    _QUICK,
    hyperparameters={"observation_normalisation": False},
    reason="classic control with discrete actions, docs/results/first_results.md",
)
_PENDULUM = replace(
    _QUICK,
    hyperparameters={"learning_rate": 1e-3},
    reason="Pendulum, docs/results/first_results.md",
)
_PUSHER = StartingJob(
    hyperparameters={"learning_rate": 1e-3},
    reason="Pusher, docs/results/first_results.md",
)
_SWIMMER = StartingJob(
    hyperparameters={"observation_normalisation": False},
    reason="Swimmer, docs/results/first_results.md",
)
_BIPEDAL = StartingJob(
    hyperparameters={
        "learning_rate_decay": "none",
        "reward_scaling": False,
        "value_loss": "bounded_error",
        "value_clip": 1e6,
        "value_coefficient": 0.5,
    },
    reason="BipedalWalker, docs/results/first_results.md",
)
_ATARI = StartingJob(samples_per_round=1024)
_REPLAYED_FEWER_STEPS = 5
"""SAC and CrossQ learn from fewer steps, and take a gradient step for each."""
_REPLAYED_ROUND = 256
"""Steps of their rounds: the actors' policy lags by one to two times as many gradient steps."""
_BY_NAME: Mapping[str, StartingJob] = {
    "ALE/": _ATARI,
    **dict.fromkeys(("Acrobot-", "CartPole-", "MountainCar-"), _DISCRETE),
    "BipedalWalker-": _BIPEDAL,
    "MountainCarContinuous-": _QUICK,
    "Pendulum-": _PENDULUM,
    "Pusher-": _PUSHER,
    "Swimmer-": _SWIMMER,
}
"""By prefix of the environment's name; all others have the usual default."""


def starting_job(env_id: str, algorithm: str = "ppo") -> StartingJob:
    """Return the length and rounds of training, from an environment's name alone."""
    named = (job for prefix, job in _BY_NAME.items() if env_id.startswith(prefix))
    usual = next(named, StartingJob())
    if algorithm not in ALGORITHMS or not ALGORITHMS[algorithm].replays:
        return usual
    fewer = usual.total_steps // _REPLAYED_FEWER_STEPS
    return replace(usual, total_steps=fewer, samples_per_round=_REPLAYED_ROUND)


def train_spec(
    *,
    file: Path | None = None,
    options: Mapping[str, JsonValue],
    assignments: Sequence[str] = (),
    total_steps: int | None = None,
    here: bool = False,
) -> JobSpec:
    """Return the requested job, completed with the defaults.

    Args:
        file: YAML or JSON file with any of JobSpec's fields.
        options: Values by dotted path, such as `stop.max_rounds`; they win over the file.
        assignments: `path=value` texts; they win over both.
        total_steps: Environment steps, instead of `stop.max_rounds`.
        here: Whether it runs on this machine, where the default is no cap.

    Raises:
        CommandError: Some fields are wrong; one line each.
    """
    raw = merged(file=file, options=options, assignments=assignments)
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
    if completed and not rounds_said and total_steps is None and planned_steps(spec) is not None:
        total_steps = starting_job(spec.env_id, spec.algorithm).total_steps
    if total_steps is not None:
        _say(raw, "stop", "max_rounds", rounds_for(spec, total_steps))
        spec = validated(raw)
    if completed and not says(raw, "evaluation", "every_rounds"):
        every = math.ceil(spec.stop.max_rounds / _EVALUATIONS)
        _say(raw, "evaluation", "every_rounds", every)
        spec = validated(raw)
    return spec


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
    if "steps_per_actor" not in raw and "samples_per_round" not in raw:
        algorithm = ALGORITHMS.get(str(raw.get("algorithm", JobSpec().algorithm)))
        if algorithm is not None and algorithm.on_policy and not _decides_samples(raw):
            raw["samples_per_round"] = usual.samples_per_round
        else:  # otherwise it would mix fragments, which must have equal lengths
            raw["steps_per_actor"] = usual.samples_per_round // usual.num_actors
    scaling = raw.get("scaling", {})
    if isinstance(scaling, dict) and scaling.keys() <= {"num_actors"}:
        if scaling or not says_range(raw):
            raw["scaling"] = {"policy": "fixed", "num_actors": usual.num_actors, **scaling}
        if "samples_per_round" in raw and not says(raw, "episodes", "resize"):
            _say(raw, "episodes", "resize", True)


def _fix_hyperparameters(raw: JsonObject) -> None:
    """Set the values with which this kind of environment learns better than with the preset."""
    said = raw.get("hyperparameters", {})
    if raw.get("algorithm", "ppo") == "ppo" and isinstance(said, dict):
        usual = starting_job(str(raw.get("env_id", JobSpec().env_id))).hyperparameters
        raw["hyperparameters"] = {**usual, **said}


def _policy(raw: JsonObject) -> object:
    scaling = raw.get("scaling")
    return scaling.get("policy") if isinstance(scaling, dict) else scaling


def _decides_samples(raw: JsonObject) -> bool:
    name = _policy(raw)
    return name in POLICIES and POLICIES[str(name)].decides_samples


def _say(raw: JsonObject, group: str, field: str, value: JsonValue) -> None:
    before = raw.get(group)
    raw[group] = {**(before if isinstance(before, dict) else {}), field: value}
