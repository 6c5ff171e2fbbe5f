"""Scaling policies, which decide a round's number of actors: the parameters of each.

A job chooses and configures a policy; its rule is in `services/scaler/scaling`. The parameters are
separate, so that the command line and the API can list, check and explain policies.
"""

from functools import reduce
from operator import or_
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from shared.contracts.message import (
    READ_BACK,
    Message,
    NonNegativeFloat,
    Number,
    PositiveFloat,
    PositiveInt,
)
from shared.contracts.minions_agent import MinionsAgent

_Window = Annotated[int, Field(strict=True, ge=2, le=1000)]
_Decay = Annotated[Number, Field(gt=0, le=1)]


MAX_ACTORS = 3000
"""Most actors of a round in any job."""
_Actors = Annotated[int, Field(strict=True, ge=1, le=MAX_ACTORS)]
OwnChoice = Annotated[int, Field(strict=True, ge=0, le=256)] | Literal["auto"]


class ActorRange(Message):
    """Range of the number of actors in a round."""

    min: _Actors = 8
    """Fewest actors of a round (I_min, section 8.1)."""
    max: _Actors = 64
    """Most actors of a round (I_max, section 8.1)."""
    own: OwnChoice | None = None
    """Actor processes on the learner's own cores, which cost nothing extra. Functions run the
    actors that do not fit in time. `auto`: one per core. 0: functions only. Weights do not depend
    on it. Unset: the preset's, see `nitro presets`.
    """
    value_of_time_usd_per_hour: NonNegativeFloat = 1.0
    """Value of an hour of waiting, in addition to the learner's price, for the choice between own
    cores and functions. 0 counts only money.
    """

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min ({self.min}) must not exceed max ({self.max})")
        return self

    def clip(self, num_actors: int) -> int:
        """Return the nearest number inside the range."""
        return max(self.min, min(self.max, num_actors))


class Policy(Message):
    """Parameters of a scaling policy; each subclass is a policy."""

    policy: str
    decides_samples: ClassVar[bool] = False
    """Whether it needs rounds in which more actors bring more samples."""
    divides_samples: ClassVar[bool] = False
    """Whether it divides a round's fixed number of samples among the actors."""
    measures: ClassVar[bool] = False
    """Whether it uses a detector's measurements."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: object) -> None:
        """Register the policy under the only value of its field `policy`."""
        (name,) = get_args(cls.model_fields["policy"].annotation)
        POLICIES[name] = cls

    def asked_for(self) -> dict[str, float]:
        """Return the numbers of actors in the parameters, by field."""
        return {}

    def require_fit(self, actors: ActorRange, *, shares_samples: bool, on_policy: bool) -> None:
        """Check that the policy suits a job's rounds.

        Args:
            actors: The job's range.
            shares_samples: Whether the actors of a round share a fixed number of samples.
            on_policy: Whether each update learns from exactly one whole round.

        Raises:
            ValueError: It does not suit them; the message names the field and its value.
        """
        for field, number in self.asked_for().items():
            if not actors.min <= number <= actors.max:
                raise ValueError(
                    f"scaling.{field} ({number:g}) must lie inside actors "
                    f"[{actors.min}, {actors.max}]"
                )


POLICIES: dict[str, type[Policy]] = {}
"""Every policy's parameters by its name."""


class NitroScaling(Policy):
    """Actors by boosting score, from the curvature of the surrogate objective."""

    policy: Literal["nitro"] = "nitro"
    measures: ClassVar[bool] = True
    window: _Window = 6
    """Number of rounds over which the convexity ratio is normalised (n, section 8.1)."""
    decay: _Decay = 0.96
    """Per-round decay of the score (d, section 8.1)."""
    convention: Literal["paper", "artifact"] = "paper"
    """`paper`: the score of section 5.3. `artifact`: sign, window and floor of the published
    code."""


class FixedScaling(Policy):
    """A constant number of actors."""

    policy: Literal["fixed"]
    num_actors: _Actors = 16
    """Actors per round, inside the job's `actors` range."""

    def asked_for(self) -> dict[str, float]:
        """Return the constant."""
        return {"num_actors": self.num_actors}


class AutoScaling(Policy):
    """The most actors that share a round's samples while their steps outweigh their calls."""

    policy: Literal["auto"]
    divides_samples: ClassVar[bool] = True
    steps_per_overhead: Annotated[Number, Field(gt=0, le=1000)] = 5.0
    """An actor's steps take at least this many times as long as the overhead of its call."""

    def require_fit(self, actors: ActorRange, *, shares_samples: bool, on_policy: bool) -> None:
        """Check that the job shares samples."""
        if not shares_samples:
            raise ValueError(
                "scaling.policy (auto) needs samples_per_round, which it divides among the actors"
            )


class RandomScaling(Policy):
    """A uniform random score instead of the boosting score: `nitro` without its detector."""

    policy: Literal["random"]
    decay: _Decay = 0.96
    """Per-round decay of the score, as for `nitro`. Not used with `mean_actors`."""
    mean_actors: Annotated[Number, Field(ge=1, le=MAX_ACTORS)] | None = None
    """Draw numbers with this mean instead, inside the job's range and without decay. Two
    consecutive rounds have this mean, within half an actor.
    """

    def asked_for(self) -> dict[str, float]:
        """Return the mean, if set."""
        return {} if self.mean_actors is None else {"mean_actors": self.mean_actors}


class KungFuScaling(Policy):
    """Actors by gradient noise scale, never fewer than before (Mai et al., KungFu, OSDI 2020)."""

    policy: Literal["kungfu"]
    measures: ClassVar[bool] = True
    smoothing: Annotated[Number, Field(ge=0, lt=1)] = 0.9
    """Weight of the past in both moving averages. KungFu's optimiser uses 0.9."""
    every_rounds: PositiveInt = 1
    """Rounds between two changes of the number."""


class MarginalScaling(Policy):
    """Actors by marginal value: sqrt(noise scale * dollars per round / dollars per actor)."""

    policy: Literal["marginal"]
    measures: ClassVar[bool] = True
    decides_samples: ClassVar[bool] = True
    value_of_time_usd_per_hour: NonNegativeFloat = 0.0
    """Value of an hour of waiting, in addition to its cost; 0 counts only money."""
    smoothing: Annotated[Number, Field(ge=0, lt=1)] = 0.9
    """Weight of the past in the moving averages of the gradient's norm and noise."""
    max_step: Annotated[Number, Field(gt=1, le=MAX_ACTORS)] = 2.0
    """Largest factor of change from one round to the next."""
    cost_ratio: PositiveFloat | None = None
    """A round's fixed cost divided by an actor's cost. Unset: from the job's own bill. If set,
    measured times are ignored and equal seeds give equal numbers.
    """

    @model_validator(mode="after")
    def _counted_once(self) -> Self:
        if self.cost_ratio is not None and self.value_of_time_usd_per_hour:
            raise ValueError("cost_ratio overrides value_of_time_usd_per_hour: give one of them")
        return self

    def require_fit(self, actors: ActorRange, *, shares_samples: bool, on_policy: bool) -> None:
        """Check that more actors bring more samples to one update."""
        if shares_samples:
            raise ValueError(
                "scaling.policy (marginal) decides how many samples a round has: give "
                "steps_per_actor instead of samples_per_round"
            )
        if not on_policy:
            raise ValueError("scaling.policy (marginal) is for PPO, which learns round by round")


class HydrozoaScaling(Policy):
    """Start with the fewest actors and double every n rounds (Guo et al., Hydrozoa, MLSys 2022)."""

    policy: Literal["hydrozoa"]
    every_rounds: PositiveInt = 10
    """Rounds between two doublings. The paper's comparison uses 10."""


class MinionsScaling(Policy):
    """A trained agent samples the number (MinionsRL). `nitro scheduler train` trains one."""

    policy: Literal["minionsrl"]
    agent: MinionsAgent
    """Weights of its network."""

    def require_fit(self, actors: ActorRange, *, shares_samples: bool, on_policy: bool) -> None:
        """Check that the agent can choose a number in a job's range."""
        if self.agent.num_choices < actors.min:
            raise ValueError(
                f"scaling.agent ({self.agent.num_choices} choices) must be able to choose "
                f"actors.min ({actors.min})"
            )


class RewardWindowScaling(Policy):
    """More actors while returns change, fewer while they stagnate."""

    policy: Literal["reward_window"]
    window: _Window = 3
    """Number of past rounds to look at."""
    step: PositiveInt = 8
    """Actors added or removed per round."""
    flat: NonNegativeFloat = 0.01
    """Returns stagnate if their mean change per round is below this share of their mean magnitude.
    """


class ScheduleScaling(Policy):
    """A given list of numbers, round by round. It can repeat a run."""

    policy: Literal["schedule"]
    num_actors: Annotated[tuple[_Actors, ...], Field(min_length=1, max_length=10_000)]
    """Actors of rounds 0, 1, 2, ... The last number holds after the end of the list."""

    def asked_for(self) -> dict[str, float]:
        """Return every entry."""
        return {f"num_actors.{index}": number for index, number in enumerate(self.num_actors)}


class _AnyPolicy:
    """Reads a policy's parameters with the class of its name; describes all policies."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        every: Any = reduce(or_, POLICIES.values())
        described = handler.generate_schema(Annotated[every, Field(discriminator="policy")])
        return core_schema.with_info_wrap_validator_function(
            cls._read, described, serialization=core_schema.simple_ser_schema("any")
        )

    @staticmethod
    def _read(value: object, _: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Policy:
        if isinstance(value, Policy):
            return value
        name = value.get("policy") if isinstance(value, dict) else value
        if not isinstance(name, str) or name not in POLICIES:
            raise ValueError(f"must have a policy, one of {', '.join(POLICIES)}; got {name!r:.80}")
        return POLICIES[name].model_validate(
            value, extra="ignore" if info.context == READ_BACK else None, context=info.context
        )


Scaling = Annotated[Policy, _AnyPolicy]
