"""One training run as MinionsRL's scheduler lives it: states, choices, rewards.

Reward of a round: -0.1 times its duration. If the run missed its target return, the last round
also gets what the best evaluation fell short by.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from shared.contracts.minions_agent import MinionsAgent, SchedulerState

SECOND_REWARD = -0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingEpisode:
    """A run from its first round to its last."""

    states: tuple[SchedulerState, ...]
    choices: tuple[int, ...]
    """Actors drawn, before they were held to the job's range."""
    rewards: tuple[float, ...]
    duration_s: float
    cost_usd: float
    best_return: float | None


class EpisodeSource(Protocol):
    """Where a scheduler's training runs come from."""

    @property
    def scales(self) -> tuple[float, ...]:
        """Usual size of each number of a state # [STATE_SIZE]."""

    @property
    def num_choices(self) -> int:
        """The largest number of actors worth offering."""

    def play(self, agent: MinionsAgent, index: int) -> SchedulingEpisode:
        """Let an agent schedule one run; equal indices give equal luck."""


def round_rewards(
    durations_s: Sequence[float], *, best_return: float | None, target_return: float | None
) -> tuple[float, ...]:
    """Return the reward of each round."""
    rewards = [SECOND_REWARD * duration_s for duration_s in durations_s]
    if rewards and target_return is not None and best_return is not None:
        rewards[-1] += min(0.0, best_return - target_return)
    return tuple(rewards)
