"""A search's fields, sampler and rungs."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from shared.contracts.message import Count, Message, Number, PositiveInt

Sampler = Literal["random", "tpe"]
"""`tpe` is Optuna's tree-structured Parzen estimator."""


class SearchRange(Message):
    """The range of one field's values."""

    low: Number
    high: Number
    log: bool = False
    """Whether values are drawn evenly on a logarithmic scale."""
    whole: bool = False
    """Whether values are whole numbers."""

    @field_validator("low", "high", mode="before")
    @classmethod
    def _number(cls, value: object) -> object:
        return float(value) if type(value) is int else value

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low ({self.low:g}) must be below high ({self.high:g})")
        if self.log and self.low <= 0:
            raise ValueError(f"low ({self.low:g}) must be above 0 on a logarithmic scale")
        return self


class SearchSpec(Message):
    """One search for the values with the highest return."""

    fields: Annotated[dict[str, SearchRange], Field(min_length=1)]
    """Ranges by dotted path, such as `hyperparameters.learning_rate`."""
    trials: PositiveInt = 16
    """Number of trials."""
    sampler: Sampler = "random"
    """Sampler of values. `tpe` learns from earlier trials, and needs Optuna."""
    batch: PositiveInt | None = None
    """Trials that are drawn and promoted together; unset: all, or a quarter of them with `tpe`."""
    seed: Count = 0
    """Seed of the draws."""
    rungs: tuple[PositiveInt, ...] = ()
    """Environment steps at which all trials of a batch pause; unset: none pauses."""
    keep: Annotated[Number, Field(gt=0, lt=1)] = 0.5
    """Share of the trials to promote at each rung, at least one trial."""
    finalists: Count = 1
    """Number of best trials to retrain from the start with fresh seeds."""
    final_seeds: PositiveInt = 10
    """Seeds of each finalist."""

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if [*self.rungs] != sorted({*self.rungs}):
            raise ValueError("rungs must ascend")
        return self

    @property
    def batch_size(self) -> int:
        """Trials that are drawn together."""
        return self.batch or (self.trials if self.sampler == "random" else -(-self.trials // 4))
