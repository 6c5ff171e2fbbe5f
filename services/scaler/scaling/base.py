"""The seam between a round's measurements and its number of actors."""

from dataclasses import dataclass
from typing import Protocol

from services.scaler.boosting import ConvexityRatio
from shared.job_spec import ActorRange


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingInput:
    """What a policy may look at."""

    round_index: int
    actors: ActorRange
    ratios: tuple[float, ...]
    """Defined convexity ratios of earlier rounds, oldest first."""
    ratio: ConvexityRatio
    """This round's."""
    gradient_noise_scale: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    """What a policy asks for, before budget and concurrency."""

    num_actors: int
    """Inside the job's actor range."""
    score: float | None
    """Boosting score in [0, 1], for policies that have one."""
    ratio: float | None
    reason: str
    """Why this number, for people."""


class ScalingPolicy(Protocol):
    """Decides a round's number of actors; a pure function with parameters."""

    @property
    def history(self) -> int:
        """How many earlier ratios it wants to see."""

    def decide(self, seen: ScalingInput) -> ScalingDecision:
        """Return the number of actors worth launching."""
