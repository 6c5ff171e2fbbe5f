"""A benchmark's record: raw samples in pairs, their ratios and targets.

A machine's speed changes from minute to minute, so a bare time says little. Contestants are
therefore measured in turn, and sample i of ours is compared with sample i of the peer; the
spread of these ratios is the result.
"""

import math
import statistics
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, FiniteFloat, computed_field, model_validator

from benchmarks.environment import Environment
from shared.contracts.message import Message

Statistic = Literal["median", "p99"]


class Series(Message):
    """The samples of one contestant."""

    name: str
    """The contestant."""
    unit: str
    """Of a sample, such as `steps/s`."""
    better: Literal["higher", "lower"]
    """Which direction is good: higher for rates, lower for times and sizes."""
    samples: Annotated[tuple[FiniteFloat, ...], Field(min_length=1)]
    """In the order they were taken."""
    statistic: Statistic = "median"
    """The statistic of the samples."""
    about: dict[str, str] = {}
    """Versions and threads, as reported by a contestant in a process of its own."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def value(self) -> float:
        """The samples summed up by `statistic`."""
        if self.statistic == "median":
            return statistics.median(self.samples)
        return percentile(self.samples, 0.99)


class Spread(Message):
    """Smallest, middle and largest of some numbers."""

    min: float
    median: float
    max: float


class Target(Message):
    """The target of a row."""

    of: Literal["ratio", "ours"]
    """`ratio`: the median ratio to the peer; `ours`: our own value, in its unit."""
    bound: Literal["at_least", "at_most"]
    value: float

    def met_by(self, value: float) -> bool:
        """Whether a value is on the right side of the bound."""
        return value >= self.value if self.bound == "at_least" else value <= self.value


class Row(Message):
    """One claim: our samples beside the peer's, and the target."""

    what: str
    ours: Series
    peer: Series | None = None
    target: Target | None = None

    @model_validator(mode="after")
    def _comparable(self) -> Self:
        if self.peer is None:
            if self.target is not None and self.target.of == "ratio":
                raise ValueError(f"{self.what}: a target of the ratio needs a peer")
            return self
        ours, peer = self.ours, self.peer
        if (ours.unit, ours.better) != (peer.unit, peer.better):
            raise ValueError(f"{self.what}: {ours.name} and {peer.name} measure different things")
        if len(ours.samples) != len(peer.samples):
            raise ValueError(
                f"{self.what}: {len(ours.samples)} samples of {ours.name} cannot be paired with "
                f"{len(peer.samples)} of {peer.name}"
            )
        return self

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ratios(self) -> Spread | None:
        """How many times better we are, pair by pair: above 1 is good for rates and for times."""
        if self.peer is None:
            return None
        pairs = zip(self.ours.samples, self.peer.samples, strict=True)
        if self.ours.better == "higher":
            ratios = [ours / peer for ours, peer in pairs]
        else:
            ratios = [peer / ours for ours, peer in pairs]
        return Spread(min=min(ratios), median=statistics.median(ratios), max=max(ratios))

    @computed_field  # type: ignore[prop-decorator]
    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        if self.target.of == "ours" or self.ratios is None:
            return self.target.met_by(self.ours.value)
        return self.target.met_by(self.ratios.median)


class Result(Message):
    """One module's rows, with what is needed to judge and to repeat them."""

    name: str
    """The module's."""
    title: str
    command: str
    """Repeats the measurement."""
    environment: Environment
    rows: tuple[Row, ...]

    def save(self, folder: Path) -> Path:
        """Write the result as `{name}.json` and return where."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        path.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        return path


def percentile(samples: tuple[float, ...], share: float) -> float:
    """Return the smallest sample that at least `share` of the samples do not exceed."""
    return sorted(samples)[max(0, math.ceil(share * len(samples)) - 1)]
