"""Which algorithms and presets there are, and the full set of hyper-parameters a job trains with.

Both the scaler (which refuses unknown names at submit) and the learner (which uses the values)
read this module, so it needs nothing but pydantic. A *preset* is a complete set of values for one
algorithm; a job names a preset and overrides single fields of it.

A new algorithm is one entry of `ALGORITHMS` here and one of `learning.algorithms.registry`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BeforeValidator

from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.message import NEW, plain
from shared.hyperparameters import ars, crossq, es, impact, impala, ppo, sac
from shared.hyperparameters.common import Hyperparameters
from shared.hyperparameters.replay import ReplayHyperparameters
from shared.hyperparameters.search import SearchHyperparameters

Preset = Literal["paper", "standard"]


def _plain_or_row(value: object) -> object:
    if not isinstance(value, list | tuple):
        return plain(value)
    if any(isinstance(item, bool) or not isinstance(item, int) for item in value):
        raise ValueError("must be a list of whole numbers")
    return value


HyperparameterValue = Annotated[
    bool | int | float | str | tuple[int, ...], BeforeValidator(_plain_or_row)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmTraits:
    """An algorithm's properties that everything but the learner needs."""

    presets: Mapping[Preset, Hyperparameters]
    """Complete sets by name, all of one model; there is always `paper`."""
    image_presets: Mapping[Preset, Hyperparameters] = field(default_factory=dict)
    """Presets for images, where they differ."""
    on_policy: bool
    """Whether it learns from its newest policy's trajectories alone: then rounds never overlap."""
    on_functions: bool = False
    """Whether learner functions compute its gradients."""
    objectives: frozenset[str] = frozenset({"surrogate"})
    """Values of `detector.objective` that are defined for it; empty where nothing is measured."""
    needs_boxes: bool = False
    """Whether actions must be continuous and observations vectors."""

    @property
    def model(self) -> type[Hyperparameters]:
        """The model that its full sets are of."""
        return type(self.presets["paper"])

    @property
    def replays(self) -> bool:
        """Whether it learns from single steps, each drawn again and again: then a round is few."""
        return issubclass(self.model, ReplayHyperparameters)

    @property
    def searches(self) -> bool:
        """Whether its actors play whole episodes of perturbed policies and report their returns."""
        return issubclass(self.model, SearchHyperparameters)

    @property
    def shares_samples(self) -> bool:
        """Whether the actors of a round may share a fixed number of samples."""
        return self.on_policy and not self.searches

    def unfit(self, environment: EnvironmentSpec) -> str | None:
        """Return what of an environment it cannot learn; None if it can."""
        if (self.needs_boxes or self.searches) and environment.observation.has_images:
            return "observes images"
        if self.searches and environment.agents > 1:
            return "has several agents"
        if not self.needs_boxes:
            return None
        return None if environment.action.kind == "continuous" else "has discrete actions"


ALGORITHMS: dict[str, AlgorithmTraits] = {
    "ppo": AlgorithmTraits(
        presets={"paper": ppo.PAPER, "standard": ppo.STANDARD},
        image_presets={"standard": ppo.STANDARD_IMAGES},
        on_policy=True,
        on_functions=True,
        objectives=frozenset({"surrogate", "behaviour", "total_loss"}),
    ),
    "impact": AlgorithmTraits(
        presets={"paper": impact.PAPER, "standard": impact.STANDARD},
        image_presets={"standard": impact.STANDARD_IMAGES},
        on_policy=False,
        on_functions=True,
    ),
    "impala": AlgorithmTraits(
        presets={"paper": impala.PAPER, "standard": impala.STANDARD},
        image_presets={"standard": impala.STANDARD_IMAGES},
        on_policy=False,
    ),
    "sac": AlgorithmTraits(
        presets={"paper": sac.PAPER, "standard": sac.STANDARD},
        on_policy=False,
        objectives=frozenset(),
        needs_boxes=True,
    ),
    "crossq": AlgorithmTraits(
        presets={"paper": crossq.PAPER, "standard": crossq.STANDARD},
        on_policy=False,
        objectives=frozenset(),
        needs_boxes=True,
    ),
    "ars": AlgorithmTraits(
        presets={"paper": ars.PAPER, "standard": ars.STANDARD},
        on_policy=True,
        objectives=frozenset(),
    ),
    "es": AlgorithmTraits(
        presets={"paper": es.PAPER, "standard": es.STANDARD},
        on_policy=True,
        objectives=frozenset(),
    ),
}
"""Every algorithm by its name."""


def complete_sets(*, images: bool = False) -> dict[tuple[str, Preset], Hyperparameters]:
    """Return every complete set by algorithm and preset; with `images` those that images have."""
    return {
        (name, preset): values
        for name, traits in ALGORITHMS.items()
        for preset, values in (traits.image_presets if images else traits.presets).items()
    }


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
    sets = complete_sets()
    known = ", ".join("/".join(key) for key in sets)
    if images:
        sets |= complete_sets(images=True)
    values = sets.get((algorithm, preset))
    if values is None:
        raise ValueError(f"no preset {preset!r} for algorithm {algorithm!r}; known: {known}")
    return type(values).model_validate({**values.model_dump(), **overrides}, context=NEW)
