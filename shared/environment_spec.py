"""What an environment looks like, as the actor image describes it."""

from typing import Annotated, Literal

from pydantic import Field, FiniteFloat

from shared.message import Message, PositiveInt


class ObservationSpec(Message):
    """One observation: a box of numbers."""

    shape: tuple[PositiveInt, ...]
    dtype: Literal["float32", "uint8"]
    """Type on the wire; environments that give float64 are cast to float32."""


class ContinuousActionSpec(Message):
    """A bounded box of real actions."""

    kind: Literal["continuous"] = "continuous"
    low: tuple[FiniteFloat, ...]
    high: tuple[FiniteFloat, ...]


class DiscreteActionSpec(Message):
    """One of `n` actions, numbered from 0."""

    kind: Literal["discrete"] = "discrete"
    n: PositiveInt


ActionSpec = Annotated[ContinuousActionSpec | DiscreteActionSpec, Field(discriminator="kind")]


class EnvironmentSpec(Message):
    """What the actor image says about an environment: all the learner ever needs to know of it."""

    env_id: str
    observation: ObservationSpec
    action: ActionSpec
    max_episode_steps: PositiveInt | None
    versions: dict[str, str]
    """Library name to version, for the run's record."""
