"""The interface of scaling policies: a round's measurements in, its number of actors out."""

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
    """Constant-size memory of `kungfu` and `marginal`."""

    squared_norm: FiniteFloat
    """Moving average of |G|^2."""
    variance: FiniteFloat
    """Moving average of S."""
    first_scale: PositiveFloat | None
    """`kungfu` only: the gradient noise scale when it was first defined; None before."""
    last_scale: PositiveFloat | None = None
    """`marginal` only: the noise scale when it was last defined."""
    num_actors: PositiveInt
    """Number of requested actors."""


class RoundCosts(Message):
    """Running means of the cost of a job's rounds: `fixed + num_actors * actor`."""

    num_rounds: PositiveInt
    """Number of rounds so far."""
    fixed_usd: NonNegativeFloat
    fixed_s: NonNegativeFloat
    """Part of a round's time that does not grow with the number of actors."""
    actor_usd: NonNegativeFloat
    actor_s: NonNegativeFloat
    """The learner's update of one fragment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRound:
    """The fields of an earlier round that a policy may read; None means unknown."""

    round_index: int
    requested: int
    """Requested actors."""
    num_actors: int
    """Granted actors."""
    training_return: float | None = None
    """Mean return of training episodes that ended in the round."""
    loss: float | None = None
    kl: float | None = None
    learner_s: float | None = None
    """Time of update, curvature and checkpoint."""
    actor_s: float | None = None
    """Time from the plan to the last used trajectory."""
    step_s: float | None = None
    """Mean time of an environment step."""
    call_overhead_s: float | None = None
    """Seconds of an invocation except for its steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingInput:
    """A policy's input."""

    round_index: int
    actors: ActorRange
    steps_to_share: int | None = None
    """Steps of the round over all environments, shared by its actors; None if the steps per actor
    are fixed."""
    envs_per_actor: int = 1
    """Environments per actor, which share its steps."""
    ratio: ConvexityRatio
    """This round's."""
    ratios: tuple[float, ...] = ()
    """Defined convexity ratios of earlier rounds, oldest first."""
    gradient_noise: GradientNoise | None = None
    """This round's."""
    fragment_noise: GradientNoise | None = None
    """Noise of the previous round's fragments, at the policy that sampled them."""
    costs: RoundCosts | None = None
    """Costs of the billed rounds; None before the first."""
    seed: int = 0
    """The job's."""
    past: tuple[PastRound, ...] = ()
    """The newest `num_rounds` earlier rounds, oldest first."""
    evaluation_return: float | None = None
    """Mean return of the newest evaluation."""
    remaining_usd: float = 0.0
    """Budget minus the plan's `spent_usd`."""
    memory: NoiseMemory | None = None
    """Memory from the same policy's decision on the previous round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    """A policy's request, before budget and concurrency."""

    requested: int
    """Number of actors, inside the job's range."""
    reason: str
    """Reason for the number, for people."""
    score: float | None = None
    """Boosting score in [0, 1], for policies with a score."""
    ratio: float | None = None
    """The ratio behind the score, if it may differ from the round's own."""
    memory: NoiseMemory | None = None
    """Memory for the next round's decision."""


class ScalingPolicy(ABC, Generic[P]):
    """Decides a round's number of actors; a pure function with parameters."""

    needs_fragment_noise = False
    """Whether it reads `fragment_noise`; the learner measures it only for such policies."""

    def __init__(self, parameters: P) -> None:
        self.parameters = parameters

    @abstractmethod
    def decide(self, seen: ScalingInput) -> ScalingDecision:
        """Return the number of actors worth launching."""

    def most_from(self, round_index: int, actors: ActorRange) -> int:
        """Return the most actors it can request from this round on, for any measurements."""
        return actors.max

    @property
    def num_ratios(self) -> int:
        """Number of earlier ratios that it reads."""
        return 0

    @property
    def num_rounds(self) -> int:
        """Number of earlier rounds that it reads; if more than one, open rounds come on top."""
        return 0
