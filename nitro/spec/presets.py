"""`nitro presets`: every hyper-parameter of every preset, with its value, source and meaning.

All of it is read from the models: a field's text is its meaning, then `Paper: SOURCE.` and
`Standard: SOURCE.`, see `shared.hyperparameters.ppo`.
"""

import json
import re

from pydantic import BaseModel, ConfigDict, JsonValue
from rich.table import Table

from nitro.errors import CommandError
from shared.contracts.job_spec import PRESET_WARM, Warm
from shared.contracts.learner_kind import PRESET_LEARNER, LearnerChoice
from shared.hyperparameters.common import CommonHyperparameters
from shared.hyperparameters.horizons import STANDARD_HORIZONS, Horizon, preset_horizon
from shared.hyperparameters.presets import Preset, complete_sets

_SOURCE = re.compile(r"\b(Paper|Standard): (.+?)\.(?= Paper:| Standard:|$)")


class HyperparameterRow(BaseModel):
    """One value of a preset; the fields are keys of `--json`."""

    model_config = ConfigDict(frozen=True)

    name: str
    value: JsonValue
    source: str
    """Where the value comes from."""
    meaning: str


class PresetReport(BaseModel):
    """One complete set; the fields are keys of `--json`."""

    model_config = ConfigDict(frozen=True)

    algorithm: str
    preset: Preset
    images: bool
    """Whether this is the set for observations that are images."""
    horizon: Horizon
    """`episodes.horizon` where a job does not say."""
    warm: Warm
    """`warm` where a job does not say."""
    learner: LearnerChoice
    """`learner` where a job does not say."""
    horizons: dict[str, Horizon]
    """The same for environments that have another one, by name without version."""
    hyperparameters: tuple[HyperparameterRow, ...]


def preset_reports(algorithm: str | None = None, preset: str | None = None) -> list[PresetReport]:
    """Describe the presets, of one algorithm or of one name alone if it is given.

    Raises:
        CommandError: There is no such algorithm or preset.
    """
    algorithms, names = ([*dict.fromkeys(part)] for part in zip(*complete_sets(), strict=True))
    for option, given, known in (
        ("ALGORITHM", algorithm, algorithms),
        ("--preset", preset, names),
    ):
        if given is not None and given not in known:
            raise CommandError(f"{option}: must be one of {', '.join(known)}, got {given!r}")
    return [
        PresetReport(
            algorithm=of,
            preset=name,
            images=images,
            horizon=preset_horizon(name),
            warm=PRESET_WARM[name],
            learner=PRESET_LEARNER[name],
            horizons=STANDARD_HORIZONS if name == "standard" else {},
            hyperparameters=_rows(values, preset=name),
        )
        for images in (False, True)
        for (of, name), values in complete_sets(images=images).items()
        if algorithm in (None, of) and preset in (None, name)
    ]


def _rows(values: CommonHyperparameters, *, preset: Preset) -> tuple[HyperparameterRow, ...]:
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
    """Lay one preset out for people."""
    images = ", observations that are images" if report.images else ""
    table = Table(
        title=f"{report.algorithm}, preset {report.preset}{images}", title_justify="left", box=None
    )
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("value", no_wrap=True)
    table.add_column("source", overflow="fold")
    table.add_column("meaning", overflow="fold", ratio=1)
    for row in report.hyperparameters:
        value = row.value if isinstance(row.value, str) else json.dumps(row.value)
        table.add_row(row.name, value, row.source, row.meaning)
    others = "".join(f"; {env}: {horizon}" for env, horizon in report.horizons.items())
    table.add_row(
        "episodes.horizon",
        str(report.horizon),
        "",
        f"Not a hyper-parameter but a field of the job, as `nitro fields` tells{others}.",
    )
    for field, value in (("warm", report.warm), ("learner", report.learner)):
        table.add_row(field, value, "", "Another field of the job.")
    return table
