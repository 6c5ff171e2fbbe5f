"""Returns that others have published for PPO, to hold ours against."""

from collections.abc import Mapping

from shared.contracts.message import Message, NonNegativeFloat, Number, PositiveInt


class PublishedScore(Message):
    """Mean over seeds of the mean training return of the last `episodes` episodes."""

    mean: Number
    std: NonNegativeFloat
    """Over the seeds."""
    seeds: PositiveInt
    steps: PositiveInt
    episodes: PositiveInt
    source: str


def _cleanrl(mean: float, std: float) -> PublishedScore:
    return PublishedScore(
        mean=mean,
        std=std,
        seeds=3,
        steps=1_000_000,
        episodes=100,
        source="CleanRL docs/benchmark/ppo_continuous_action.md, ppo_continuous_action, tag pr-424",
    )


CLEANRL_PPO: Mapping[str, PublishedScore] = {
    "HalfCheetah-v4": _cleanrl(1442.64, 46.03),
    "Walker2d-v4": _cleanrl(2287.95, 571.78),
    "Hopper-v4": _cleanrl(2382.86, 271.74),
    "InvertedPendulum-v4": _cleanrl(963.09, 22.20),
    "Humanoid-v4": _cleanrl(716.11, 49.08),
    "Pusher-v4": _cleanrl(-40.38, 7.15),
}
"""By environment. The table is made by openrlbenchmark's `rlops`, which averages the last 100
training episodes of each run. CleanRL has no value for Reacher-v4."""
