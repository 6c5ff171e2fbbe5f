"""The seam between a round's measurements and its number of actors."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import FiniteFloat

from services.scaler.scaling.boosting import ConvexityRatio
from shared.contracts.message import Message, NonNegativeFloat, PositiveFloat, PositiveInt
from shared.contracts.rounds import GradientNoise
from shared.contracts.scaling_spec import ActorRange, Policy

P = TypeVar("P", bound=Policy)


class NoiseMemory(Message):
    """Memory of `kungfu` and `marginal`, in place of a history that grows."""

    squared_norm: FiniteFloat
    """Moving average of |G|^2."""
    variance: FiniteFloat
    """Moving average of S, kept apart from it."""
    first_scale: PositiveFloat | None
    """`kungfu` only: the gradient noise scale when it was first defined; None before."""
    last_scale: PositiveFloat | None = None
    """`marginal` only: the noise scale when it was last defined."""
    num_actors: PositiveInt
    """Number of actors asked for."""


class RoundCosts(Message):
    """Running means of what a job's rounds cost: `fixed + num_actors * actor`."""

    num_rounds: PositiveInt
    """How many rounds there have been."""
    fixed_usd: NonNegativeFloat
    fixed_s: NonNegativeFloat
    """Time of a round that does not grow with the number of actors."""
    actor_usd: NonNegativeFloat
    actor_s: NonNegativeFloat
    """The learner's update of one fragment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRound:
    """An earlier round, as far as a policy may look at it; None is unknown."""

    round_index: int
    requested: int
    """Actors asked for."""
    num_actors: int
    """Actors granted."""
    training_return: float | None = None
    """Mean return of the training episodes that ended in it."""
    loss: float | None = None
    kl: float | None = None
    learner_s: float | None = None
    """Update, curvature and checkpoint."""
    actor_s: float | None = None
    """From the plan to the last trajectory used."""
    step_s: float | None = None
    """Mean of an environment step."""
    call_overhead_s: float | None = None
    """Seconds of an invocation beside its steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingInput:
    """A policy's input."""

    round_index: int
    actors: ActorRange
    steps_to_share: int | None = None
    """Steps of the round, over all environments, shared by its actors; None where an actor's number
    of steps is fixed instead."""
    envs_per_actor: int = 1
    """Environments among which an actor divides its steps."""
    ratio: ConvexityRatio
    """This round's."""
    ratios: tuple[float, ...] = ()
    """Defined convexity ratios of earlier rounds, oldest first."""
    gradient_noise: GradientNoise | None = None
    """This round's."""
    fragment_noise: GradientNoise | None = None
    """Of the fragments of the round before, at the policy that made them."""
    costs: RoundCosts | None = None
    """Of the rounds that are billed; None before the first."""
    seed: int = 0
    """The job's."""
    past: tuple[PastRound, ...] = ()
    """The newest earlier rounds, oldest first: as many as the policy wants to see."""
    evaluation_return: float | None = None
    """Mean return of the newest evaluation."""
    remaining_usd: float = 0.0
    """Budget that is not spent, as the plan's `spent_usd` tells."""
    memory: NoiseMemory | None = None
    """Memory of the same policy's decision about the round before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    """A policy's request, before budget and concurrency."""

    requested: int
    """Number of actors, inside the job's range."""
    reason: str
    """Why this number, for people."""
    score: float | None = None
    """Boosting score in [0, 1], for policies that have one."""
    ratio: float | None = None
    """The ratio the score was made of, where that may be another than the round's own."""
    memory: NoiseMemory | None = None
    """Memory for the next round's decision."""


class ScalingPolicy(ABC, Generic[P]):
    """Decides a round's number of actors; a pure function with parameters."""

    needs_fragment_noise = False
    """Whether it looks at `fragment_noise`, which the learner measures only then."""

    def __init__(self, parameters: P) -> None:
        self.parameters = parameters

    @abstractmethod
    def decide(self, seen: ScalingInput) -> ScalingDecision:
        """Return the number of actors worth launching."""

    def most_from(self, round_index: int, actors: ActorRange) -> int:
        """Return the most it can ask for in a round or any later one, whatever is measured."""
        return actors.max

    @property
    def num_ratios(self) -> int:
        """How many earlier ratios it looks at."""
        return 0

    @property
    def num_rounds(self) -> int:
        """How many earlier rounds it looks at; if more than one, open ones come on top."""
        return 0
