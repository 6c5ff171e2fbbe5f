"""`nitro presets`: every hyper-parameter of every preset, with its value, source and meaning.

All of it is read from the models: a field's text is its meaning, then `Paper: SOURCE.` and
`Standard: SOURCE.`, see `shared.hyperparameters.ppo`. For an environment they are the defaults of
`nitro train`, and values that differ from the preset's have the starting job as their source.
"""

import json
import re

from pydantic import BaseModel, ConfigDict, JsonValue
from rich.table import Table

from nitro.errors import CommandError
from nitro.foreign_output import foreign_code
from nitro.local.own_environments import own_packages
from nitro.spec.starting_job import starting_job
from nitro.spec.train_spec import PRESET, train_spec
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.going_on import resized
from shared.contracts.job_spec import PRESET_OWN, PRESET_WARM, Warm
from shared.contracts.jobs import resolve_for
from shared.contracts.learner_kind import PRESET_LEARNER, LearnerChoice
from shared.contracts.scaling_spec import OwnChoice
from shared.hyperparameters.common import Hyperparameters
from shared.hyperparameters.horizons import STANDARD_HORIZONS, Horizon, preset_horizon
from shared.hyperparameters.presets import ALGORITHMS, Preset, complete_sets

_IS_ENVIRONMENT = re.compile(r"-v\d+$|/")
_SOURCE = re.compile(r"\b(Paper|Standard): (.+?)\.(?= Paper:| Standard:|$)")


class HyperparameterRow(BaseModel):
    """One value of a preset; the fields are keys of `--json`."""

    model_config = ConfigDict(frozen=True)

    name: str
    value: JsonValue
    source: str
    """Source of the value."""
    meaning: str


class PresetReport(BaseModel):
    """One complete set; the fields are keys of `--json`."""

    model_config = ConfigDict(frozen=True)

    env_id: str | None
    """Its environment; None for a general preset."""
    algorithm: str
    preset: Preset
    images: bool
    """Whether this is the set for images."""
    horizon: Horizon
    """Default of `episodes.horizon`."""
    warm: Warm
    """Default of `warm`."""
    learner: LearnerChoice
    """Default of `learner`."""
    own: OwnChoice
    """Default of `actors.own`."""
    horizons: dict[str, Horizon]
    """Exceptions to the default horizon, by environment name without version."""
    hyperparameters: tuple[HyperparameterRow, ...]
    training: dict[str, JsonValue] = {}
    """Further defaults of `nitro train` in the environment."""


def environment_reports(env_id: str, algorithm: str | None = None) -> list[PresetReport]:
    """Describe the defaults of `nitro train` in an environment, with reasons.

    Args:
        env_id: The environment.
        algorithm: Only this one; otherwise all that can learn it.

    Raises:
        CommandError: There is no such environment, it cannot be built here, or the algorithm cannot
            learn it.
    """
    from shared.environments.describing import describe  # Gymnasium takes a while to load
    from shared.environments.spaces import UnsupportedEnvironment

    reference = train_spec(options={"env_id": env_id}).environment_ref
    own_packages(None)
    try:
        with foreign_code():
            environment = describe(reference)
    except UnsupportedEnvironment as error:
        raise CommandError(str(error)) from error
    able = [name for name, traits in ALGORITHMS.items() if not traits.unfit(environment)]
    wanted = able if algorithm is None else [algorithm]
    if not {*wanted} <= {*able}:
        raise CommandError(
            f"--algorithm: must be one of {', '.join(able)} in {env_id}, got {algorithm!r}"
        )
    return [_in_environment(name, environment) for name in wanted]


def _in_environment(algorithm: str, environment: EnvironmentSpec) -> PresetReport:
    env_id = environment.env_id
    usual = starting_job(env_id, algorithm)
    spec = train_spec(options={"env_id": env_id, "algorithm": algorithm}).resolved()
    spec = resized(spec, environment)
    rows = _rows(resolve_for(spec, environment), preset=spec.preset)
    length = "max_rounds" if spec.stop.ending_steps is None else "max_env_steps"
    training: dict[str, JsonValue] = {f"stop.{length}": getattr(spec.stop, length)}
    if not spec.searches:
        training[spec.size_field] = getattr(spec, spec.size_field)
    return PresetReport(
        env_id=env_id,
        algorithm=algorithm,
        preset=spec.preset,
        images=environment.observation.is_image,
        horizon=preset_horizon(spec.preset, env_id, algorithm),
        warm=PRESET_WARM[spec.preset],
        learner=spec.learner or PRESET_LEARNER[spec.preset],
        own=PRESET_OWN[spec.preset],
        horizons={},
        hyperparameters=tuple(
            row.model_copy(update={"source": usual.reason})
            if row.name in spec.hyperparameters
            else row
            for row in rows
        ),
        training=training | {f"scaling.{k}": v for k, v in spec.scaling.asked_for().items()},
    )


def preset_reports(
    name: str | None = None, preset: str | None = None, *, algorithm: str | None = None
) -> list[PresetReport]:
    """Describe the presets: all, those of an algorithm, or the defaults of an environment.

    Args:
        name: An algorithm, or an environment.
        preset: Only this one.
        algorithm: Of an environment's defaults, only this one's.

    Raises:
        CommandError: There is no such algorithm, environment or preset.
    """
    algorithms, names = ([*dict.fromkeys(part)] for part in zip(*complete_sets(), strict=True))
    if name is not None and _IS_ENVIRONMENT.search(name):
        if preset not in (None, PRESET):
            raise CommandError(f"--preset: environments have specific values only in {PRESET}")
        return environment_reports(name, algorithm)
    if algorithm is not None:
        raise CommandError("--algorithm: is for an environment; otherwise give it as NAME")
    for option, given, known in (("NAME", name, algorithms), ("--preset", preset, names)):
        if given is not None and given not in known:
            raise CommandError(f"{option}: must be one of {', '.join(known)}, got {given!r}")
    return [
        PresetReport(
            env_id=None,
            algorithm=of,
            preset=kind,
            images=images,
            horizon=preset_horizon(kind, algorithm=of),
            warm=PRESET_WARM[kind],
            learner=PRESET_LEARNER[kind],
            own=PRESET_OWN[kind],
            horizons=STANDARD_HORIZONS if kind == "standard" and not ALGORITHMS[of].replays else {},
            hyperparameters=_rows(values, preset=kind),
        )
        for images in (False, True)
        for (of, kind), values in complete_sets(images=images).items()
        if name in (None, of) and preset in (None, kind)
    ]


def _rows(values: Hyperparameters, *, preset: Preset) -> tuple[HyperparameterRow, ...]:
    shown = values.model_dump(mode="json")
    rows = []
    for name, field in type(values).model_fields.items():
        text = " ".join((field.description or "").split())
        sources = {of.lower(): source for of, source in _SOURCE.findall(text)}
        meaning = text[: match.start()].rstrip() if (match := _SOURCE.search(text)) else text
        rows.append(
            HyperparameterRow(
                name=name, value=shown[name], source=sources.get(preset, ""), meaning=meaning
            )
        )
    return tuple(rows)


def preset_table(report: PresetReport) -> Table:
    """Format one preset for people."""
    images = ", image observations" if report.images else ""
    place = f"{report.env_id}: " if report.env_id else ""
    table = Table(
        title=f"{place}{report.algorithm}, preset {report.preset}{images}",
        title_justify="left",
        box=None,
    )
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("value", no_wrap=True)
    table.add_column("source", overflow="fold")
    table.add_column("meaning", overflow="fold", ratio=1)
    for row in report.hyperparameters:
        value = row.value if isinstance(row.value, str) else json.dumps(row.value)
        table.add_row(row.name, value, row.source, row.meaning)
    horizons = "".join(f"; {env}: {horizon}" for env, horizon in report.horizons.items())
    table.add_row(
        "episodes.horizon",
        str(report.horizon),
        "",
        f"Steps after which a training episode is cut{horizons}. A field of the job.",
    )
    others = {
        "warm": (report.warm, "Method to keep functions' environments warm on AWS."),
        "learner": (report.learner, "Kind of learner: a GPU machine, cores, or functions."),
        "actors.own": (str(report.own), "Actors on the learner's own cores."),
    }
    for field, (value, meaning) in others.items():
        table.add_row(field, value, "", f"{meaning} A field of the job.")
    for field, size in report.training.items():
        meaning = "A field of the job: see `nitro fields`."
        table.add_row(field, json.dumps(size), "decision 030", meaning)
    return table
