"""The specification of a sweep: environments x settings x seeds, or a search."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, JsonValue, ValidationError, field_validator, model_validator

from nitro.errors import CommandError
from nitro.spec.seeds import parse_seeds
from nitro.spec.spec_file import read_spec, refusal
from nitro.spec.total_steps import parse_steps
from nitro.sweeps.search.spec import SearchSpec
from shared.contracts.job_spec import MAX_SEED
from shared.contracts.message import Count, Message, PositiveFloat, PositiveInt

MOST_SEEDS = 1000
"""A larger number is a typo."""
_NAME = r"^[a-z0-9][a-z0-9.-]{0,54}$"
_UNSAFE = re.compile(r"[^a-z0-9]+")

Seeds = Annotated[tuple[Count, ...], Field(min_length=1, max_length=MOST_SEEDS)]
Fields = dict[str, JsonValue]
"""Values by dotted path in a job, such as `hyperparameters.learning_rate`."""


class SweepSpec(Message):
    """One sweep; the fields are those of a `--spec` file."""

    name: Annotated[str, Field(pattern=_NAME)] | None = None
    """Name of its folder and tag of its jobs; unset: derived from the other fields."""
    environments: Annotated[tuple[str, ...], Field(min_length=1)]
    """Names of registered environments."""
    seeds: Seeds = (1, 2, 3, 4, 5)
    """A number N for 1 to N, a text such as `1-5` or `1,3`, or a list."""
    total_steps: PositiveInt | None = None
    """Environment steps of each job; unset: as `nitro train`."""
    job: Fields = {}
    """Common fields of all jobs."""
    settings: dict[str, Fields] = {}
    """Fields by a setting's name, such as `ppo: {algorithm: ppo}`."""
    vary: dict[str, Annotated[list[JsonValue], Field(min_length=1)]] = {}
    """Values by field; each setting is trained with every combination of values."""
    budget_usd: PositiveFloat | None = None
    """Cap on the projected AWS cost of all jobs together."""
    search: SearchSpec | None = None
    """Searches for the best values instead of a grid."""

    @field_validator("environments", mode="before")
    @classmethod
    def _one_environment(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @field_validator("seeds", mode="before")
    @classmethod
    def _seeds(cls, value: object) -> object:
        return parse_seeds(value, most=MOST_SEEDS) if isinstance(value, int | str) else value

    @field_validator("total_steps", mode="before")
    @classmethod
    def _steps(cls, value: object) -> object:
        if isinstance(value, float | str):
            try:
                return parse_steps(str(value))
            except CommandError as error:
                raise ValueError(str(error)) from error
        return value

    @field_validator("budget_usd", mode="before")
    @classmethod
    def _dollars(cls, value: object) -> object:
        return float(value) if type(value) is int else value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name in ("environments", "seeds"):
            values = getattr(self, name)
            if len({*values}) < len(values):
                raise ValueError(f"{name}: one is named twice")
        if max(self.seeds) > MAX_SEED:
            raise ValueError(f"seeds: none may be above {MAX_SEED}")
        taken = {"env_id", "seed"} & {*self.job, *self.vary}
        if taken:
            raise ValueError(f"{min(taken)}: use `environments` and `seeds`")
        if self.search is not None and (self.settings or self.vary):
            raise ValueError("search: cannot be given together with settings or vary")
        if self.search is not None and len(self.environments) > 1:
            raise ValueError("search: is on one environment")
        return self

    @property
    def known_name(self) -> str:
        """Its name, or one made of the environments and a digest of everything asked for."""
        if self.name is not None:
            return self.name
        slug = _UNSAFE.sub("-", self.environments[0].lower()).strip("-")[:30]
        more = f"-and-{len(self.environments) - 1}" if len(self.environments) > 1 else ""
        # A raised budget does not make another sweep.
        asked = self.model_copy(update={"budget_usd": None}).model_dump_json()
        return f"{slug}{more}-{hashlib.sha256(asked.encode()).hexdigest()[:8]}"

    @property
    def tag(self) -> str:
        """The tag of its jobs."""
        return f"sweep:{self.known_name}"


def sweep_spec(file: Path | None, options: Mapping[str, JsonValue]) -> SweepSpec:
    """Return the sweep of a file and options; options take precedence.

    Args:
        file: YAML or JSON with the fields of `SweepSpec`.
        options: Fields of `SweepSpec`; `job`, `settings` and `vary` are added to the file's.

    Raises:
        CommandError: A field is invalid; one line each.
    """
    raw = {} if file is None else read_spec(file)
    for name, value in options.items():
        before = raw.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            raw[name] = {**before, **value}
        else:
            raw[name] = value
    if "environments" not in raw:
        raise CommandError("ENV: name an environment, or give a --spec file with `environments`")
    try:
        return SweepSpec.model_validate(raw)
    except ValidationError as error:
        raise refusal(error, known=tuple(SweepSpec.model_fields)) from error
