"""Who decides how many actors a round launches: every scaling policy's parameters.

A policy is chosen and set up in the job; what it computes is in `services/scaler/scaling`. Nothing
here computes, so that the command line and the API can list, check and explain policies.
"""

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from shared.contracts.message import Message, NonNegativeFloat, Number, PositiveInt
from shared.contracts.minions_agent import MinionsAgent

_Window = Annotated[int, Field(strict=True, ge=2, le=1000)]
_Decay = Annotated[Number, Field(gt=0, le=1)]


MAX_ACTORS = 3000
"""Most actors of a round, whatever a job asks for."""
_Actors = Annotated[int, Field(strict=True, ge=1, le=MAX_ACTORS)]


class ActorRange(Message):
    """How many actors one round may launch."""

    min: _Actors = 8
    """Fewest actors of a round (I_min, section 8.1)."""
    max: _Actors = 64
    """Most actors of a round (I_max, section 8.1)."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min ({self.min}) must not exceed max ({self.max})")
        return self

    def clip(self, num_actors: int) -> int:
        """Return the nearest number inside the range."""
        return max(self.min, min(self.max, num_actors))


class NitroScaling(Message):
    """Actors by boosting score, which is computed from the surrogate's curvature."""

    policy: Literal["nitro"] = "nitro"
    window: _Window = 6
    """Rounds the convexity ratio is normalised over (n, section 8.1)."""
    decay: _Decay = 0.96
    """Per-round decay of the score (d, section 8.1)."""
    convention: Literal["paper", "artifact"] = "paper"
    """`paper`: section 5.3's score; `artifact`: sign, window and floor of the published code."""


class FixedScaling(Message):
    """The same number of actors every round."""

    policy: Literal["fixed"]
    num_actors: _Actors = 16
    """Actors per round, inside the job's `actors` range."""


class RandomScaling(Message):
    """A uniform random score in place of the boosting score: `nitro` without its detector."""

    policy: Literal["random"]
    decay: _Decay = 0.96
    """Per-round decay of the score, as for `nitro`; not used with `mean_actors`."""
    mean_actors: Annotated[Number, Field(ge=1, le=MAX_ACTORS)] | None = None
    """Draw numbers with this mean instead, inside the job's range and without decay. The
    mean of two consecutive rounds is within half an actor of it."""


class KungFuScaling(Message):
    """Actors by gradient noise scale, never fewer than before (Mai et al., KungFu, OSDI 2020)."""

    policy: Literal["kungfu"]
    smoothing: Annotated[Number, Field(ge=0, lt=1)] = 0.9
    """Weight of the past in both moving averages; KungFu's optimiser uses 0.9."""
    every_rounds: PositiveInt = 1
    """Rounds between two changes of the number."""


class HydrozoaScaling(Message):
    """From the fewest actors, twice as many every n rounds (Guo et al., Hydrozoa, MLSys 2022)."""

    policy: Literal["hydrozoa"]
    every_rounds: PositiveInt = 10
    """Rounds between two doublings; the paper's comparison uses 10."""


class MinionsScaling(Message):
    """Actors drawn by a trained agent (MinionsRL); `nitro scheduler train` makes one."""

    policy: Literal["minionsrl"]
    agent: MinionsAgent
    """Weights of its network."""


class RewardWindowScaling(Message):
    """More actors while returns are changing, fewer while they stand still."""

    policy: Literal["reward_window"]
    window: _Window = 3
    """Rounds looked back at."""
    step: PositiveInt = 8
    """Actors added or removed per round."""
    flat: NonNegativeFloat = 0.01
    """Returns stand still up to this mean change per round, relative to their mean size."""


class ScheduleScaling(Message):
    """A given list of counts, round by round: replays any run."""

    policy: Literal["schedule"]
    num_actors: Annotated[tuple[_Actors, ...], Field(min_length=1, max_length=10_000)]
    """Actors of rounds 0, 1, 2, ...; after its end the last one holds."""


Policy = (
    NitroScaling
    | FixedScaling
    | RandomScaling
    | KungFuScaling
    | HydrozoaScaling
    | MinionsScaling
    | RewardWindowScaling
    | ScheduleScaling
)
Scaling = Annotated[Policy, Field(discriminator="policy")]

POLICIES: dict[str, type[Policy]] = {
    get_args(model.model_fields["policy"].annotation)[0]: model for model in get_args(Policy)
}
"""Every policy's parameters by its name."""


def require_fit(scaling: Policy, actors: ActorRange) -> None:
    """Make sure that a policy can keep to a job's range.

    Raises:
        ValueError: It cannot; names the field and its value.
    """
    numbers: dict[str, float] = {}
    if isinstance(scaling, FixedScaling):
        numbers["scaling.num_actors"] = scaling.num_actors
    elif isinstance(scaling, ScheduleScaling):
        numbers |= {f"scaling.num_actors.{i}": n for i, n in enumerate(scaling.num_actors)}
    elif isinstance(scaling, RandomScaling) and scaling.mean_actors is not None:
        numbers["scaling.mean_actors"] = scaling.mean_actors
    for field, number in numbers.items():
        if not actors.min <= number <= actors.max:
            raise ValueError(
                f"{field} ({number:g}) must lie inside actors [{actors.min}, {actors.max}]"
            )
    if isinstance(scaling, MinionsScaling) and scaling.agent.num_choices < actors.min:
        raise ValueError(
            f"scaling.agent ({scaling.agent.num_choices} choices) must be able to choose "
            f"actors.min ({actors.min})"
        )
