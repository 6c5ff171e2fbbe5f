"""Pre-training of MinionsRL's scheduler, and what it costs."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from time import perf_counter

from experiments.minionsrl.episode import EpisodeSource, SchedulingEpisode
from experiments.minionsrl.network import MinionsTrainer, one_thread
from shared.contracts.message import Count, Message, NonNegativeFloat
from shared.contracts.minions_agent import MinionsAgent

_EDGE = 10
"""Episodes averaged at the beginning and at the end of the training."""


class TrainingReport(Message):
    """The outcome of a pre-training."""

    source: str
    """`recorded` or `real` runs."""
    episodes: Count
    interrupted: bool
    """Whether there should have been more of them."""
    rounds: Count
    first_reward: float
    """Mean reward of the first ten episodes."""
    last_reward: float
    """Mean reward of the last ten."""
    best_reward: float
    """Of the episode whose agent is kept."""
    best_episode: Count
    wall_s: NonNegativeFloat
    """Time it took here."""
    run_s: NonNegativeFloat
    """Time its training runs took, or would have taken."""
    run_usd: NonNegativeFloat
    """Cost of its training runs on AWS; of simulated runs, the cost they would have had."""
    recorded_usd: NonNegativeFloat
    """Cost of the recorded runs that it learned from; they were not made for it alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedScheduler:
    """The agent of the best episode, and how it came about."""

    agent: MinionsAgent
    report: TrainingReport


def train_scheduler(
    source: EpisodeSource,
    *,
    name: str,
    episodes: int,
    seed: int,
    recorded_usd: float = 0.0,
    progress: Callable[[int, SchedulingEpisode], None],
) -> TrainedScheduler:
    """Train an agent episode by episode and keep the one with the largest total reward.

    An interrupt ends it with what has been learned until then.

    Args:
        source: Plays the episodes.
        name: What kind of source it is, for the report.
        episodes: At least 1; the published pre-training has 100.
        seed: Of the first weights.
        recorded_usd: What the source's records cost.
        progress: Told of each episode.

    Raises:
        KeyboardInterrupt: Before the end of the first episode.
    """
    start = perf_counter()
    trainer = MinionsTrainer(num_choices=source.num_choices, scales=source.scales, seed=seed)
    played: list[SchedulingEpisode] = []
    best_reward, best_episode, best_agent = float("-inf"), 0, trainer.agent()
    interrupted = False
    try:
        for index in range(episodes):
            agent = trainer.agent()
            episode = source.play(agent, index)
            reward = sum(episode.rewards)
            if reward > best_reward:
                best_reward, best_episode, best_agent = reward, index, agent
            played.append(episode)
            with one_thread():
                trainer.learn(episode.states, episode.choices, episode.rewards)
            progress(index, episode)
    except KeyboardInterrupt:
        if not played:
            raise
        interrupted = True
    rewards = [sum(episode.rewards) for episode in played]
    report = TrainingReport(
        source=name,
        episodes=len(played),
        interrupted=interrupted,
        rounds=sum(len(episode.states) for episode in played),
        first_reward=fmean(rewards[:_EDGE]),
        last_reward=fmean(rewards[-_EDGE:]),
        best_reward=best_reward,
        best_episode=best_episode,
        wall_s=perf_counter() - start,
        run_s=sum(episode.duration_s for episode in played),
        run_usd=sum(episode.cost_usd for episode in played),
        recorded_usd=recorded_usd,
    )
    return TrainedScheduler(agent=best_agent, report=report)
