"""Which presets there are, and the full set of hyper-parameters a job trains with.

Both the scaler (which refuses unknown names at submit) and the learner (which uses the values)
read this module, so it needs nothing but pydantic. A *preset* is a complete set of values for one
algorithm; a job names a preset and overrides single fields of it.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator

from shared.contracts.message import NEW, plain
from shared.hyperparameters import impact as impact_hyperparameters
from shared.hyperparameters import impala as impala_hyperparameters
from shared.hyperparameters import ppo as ppo_hyperparameters
from shared.hyperparameters.impact import ImpactHyperparameters
from shared.hyperparameters.impala import ImpalaHyperparameters
from shared.hyperparameters.ppo import PpoHyperparameters

Preset = Literal["paper", "standard"]

Hyperparameters = PpoHyperparameters | ImpactHyperparameters | ImpalaHyperparameters
"""Any algorithm's full set; which algorithm it is for, its type says."""


def _plain_or_row(value: object) -> object:
    if not isinstance(value, list | tuple):
        return plain(value)
    if any(isinstance(item, bool) or not isinstance(item, int) for item in value):
        raise ValueError("must be a list of whole numbers")
    return value


HyperparameterValue = Annotated[
    bool | int | float | str | tuple[int, ...], BeforeValidator(_plain_or_row)
]

KINDS: Mapping[str, type[Hyperparameters]] = {
    "ppo": PpoHyperparameters,
    "impact": ImpactHyperparameters,
    "impala": ImpalaHyperparameters,
}
"""The model that a full set is of, by algorithm."""

PRESETS: Mapping[tuple[str, Preset], Hyperparameters] = {
    ("ppo", "paper"): ppo_hyperparameters.PAPER,
    ("ppo", "standard"): ppo_hyperparameters.STANDARD,
    ("impact", "paper"): impact_hyperparameters.PAPER,
    ("impact", "standard"): impact_hyperparameters.STANDARD,
    ("impala", "paper"): impala_hyperparameters.PAPER,
    ("impala", "standard"): impala_hyperparameters.STANDARD,
}
"""Every complete set, by algorithm and preset."""


IMAGE_PRESETS: Mapping[tuple[str, Preset], Hyperparameters] = {
    ("ppo", "standard"): ppo_hyperparameters.STANDARD_IMAGES,
    ("impact", "standard"): impact_hyperparameters.STANDARD_IMAGES,
    ("impala", "standard"): impala_hyperparameters.STANDARD_IMAGES,
}
"""What a preset is where observations are images, if that is another set."""


def resolve(
    algorithm: str,
    preset: Preset,
    overrides: Mapping[str, HyperparameterValue],
    *,
    images: bool = False,
) -> Hyperparameters:
    """Return the full set of hyper-parameters a job trains with.

    Args:
        algorithm: Whose.
        preset: The set to start from.
        overrides: Values in place of the preset's.
        images: Whether the environment's observations are images.

    Raises:
        ValueError: The algorithm has no such preset.
        pydantic.ValidationError: An override has an unknown name or a value out of range.
    """
    presets = {**PRESETS, **IMAGE_PRESETS} if images else PRESETS
    values = presets.get((algorithm, preset))
    if values is None:
        known = ", ".join("/".join(key) for key in PRESETS)
        raise ValueError(f"no preset {preset!r} for algorithm {algorithm!r}; known: {known}")
    return type(values).model_validate({**values.model_dump(), **overrides}, context=NEW)
