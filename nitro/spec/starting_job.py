"""The jobs that `nitro train` and `nitro.train` start from, by the environment's name.

They are chosen to learn well on one machine within minutes (decision 030).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from shared.hyperparameters.presets import ALGORITHMS


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingJob:
    """The length of training on an environment, and its rounds."""

    total_steps: int = 1_000_000
    samples_per_round: int = 2048
    """The setting that the preset `standard` is tuned for."""
    num_actors: int = 8
    hyperparameters: Mapping[str, JsonValue] = field(default_factory=dict)
    """Hyper-parameters of PPO or a search that replace the preset's."""
    reason: str = ""
    """Their source, as shown by `nitro presets ENV`."""


def _ars(
    total_steps: float,
    *,
    directions: int,
    top: int,
    step_size: float,
    std: float,
    offset: float = 0.0,
    normalises: bool = True,
    num_actors: int = 8,
    reason: str = "arXiv 1803.07055, tables 9 and 10; steps: RL Zoo's ars.yml",
) -> StartingJob:
    return StartingJob(
        total_steps=int(total_steps),
        num_actors=num_actors,
        hyperparameters={
            "directions": directions,
            "top_directions": top,
            "step_size": step_size,
            "exploration_std": std,
            "reward_offset": offset,
            "observation_normalisation": normalises,
        },
        reason=reason,
    )


_ARS: Mapping[str, StartingJob] = {
    "Swimmer-": _ars(
        2e6,
        directions=2,
        top=2,
        step_size=0.02,
        std=0.05,
        num_actors=4,
        reason="own: with arXiv 1803.07055's values two of six seeds stay below 100",
    ),
    "Hopper-": _ars(7e6, directions=8, top=4, step_size=0.01, std=0.025, offset=1.0),
    "HalfCheetah-": _ars(1.25e7, directions=32, top=4, step_size=0.02, std=0.03, num_actors=16),
    "Walker2d-": _ars(
        7.5e7, directions=40, top=30, step_size=0.03, std=0.025, offset=1.0, num_actors=16
    ),
    "Ant-": _ars(
        7.5e7, directions=60, top=20, step_size=0.015, std=0.025, offset=1.0, num_actors=24
    ),
    "Humanoid-": _ars(
        2.5e8, directions=230, top=230, step_size=0.02, std=0.0075, offset=5.0, num_actors=46
    ),
}


def _es(
    total_steps: float,
    *,
    num_actors: int = 8,
    reason: str = "reward_offset: as ARS; others: OpenAI's configuration for arXiv 1703.03864",
    **changed: JsonValue,
) -> StartingJob:
    return StartingJob(
        total_steps=int(total_steps), num_actors=num_actors, hyperparameters=changed, reason=reason
    )


_ES: Mapping[str, StartingJob] = {
    "Pendulum-": _es(
        2e6,
        reason="Pendulum, docs/concepts/ars.md",
        directions=20,
        exploration_std=0.1,
        learning_rate=0.05,
        weight_decay=0.0,
        observation_normalisation=False,
    ),
    "Swimmer-": _es(1.5e6),
    "Hopper-": _es(3.5e7, reward_offset=1.0),
    "HalfCheetah-": _es(2.9e6, num_actors=16),
    "Walker2d-": _es(3.9e7, num_actors=16, reward_offset=1.0),
    "InvertedPendulum-": _es(4.4e6),
    "InvertedDoublePendulum-": _es(6.2e6),
    "Humanoid-": _es(1e9, num_actors=200, directions=5000, hidden_sizes=[256, 256]),
}
"""Steps: table 1 of arXiv 1703.03864, its share of five million at 100 %; Humanoid: a guess."""
SEARCHES: Mapping[str, Mapping[str, StartingJob]] = {"ars": _ARS, "es": _ES}
"""By algorithm and prefix of the environment's name; all others have the usual default."""
_QUICK = StartingJob(total_steps=200_000)
_DISCRETE = replace(
    _QUICK,
    hyperparameters={"observation_normalisation": False},
    reason="classic control with discrete actions, docs/results/first_results.md",
)
_PENDULUM = replace(
    _QUICK,
    hyperparameters={"learning_rate": 1e-3},
    reason="Pendulum, docs/results/first_results.md",
)
_PUSHER = StartingJob(
    hyperparameters={"learning_rate": 1e-3},
    reason="Pusher, docs/results/first_results.md",
)
_SWIMMER = StartingJob(
    hyperparameters={"observation_normalisation": False},
    reason="Swimmer, docs/results/first_results.md",
)
_BIPEDAL = StartingJob(
    hyperparameters={
        "learning_rate_decay": "none",
        "reward_scaling": False,
        "value_loss": "bounded_error",
        "value_clip": 1e6,
        "value_coefficient": 0.5,
    },
    reason="BipedalWalker, docs/results/first_results.md",
)
_ATARI = StartingJob(samples_per_round=1024)
_REPLAYED_FEWER_STEPS = 5
"""SAC and CrossQ learn from fewer steps, and take a gradient step for each."""
_REPLAYED_ROUND = 256
"""Steps of their rounds: the actors' policy lags by one to two times as many gradient steps."""
_BY_NAME: Mapping[str, StartingJob] = {
    "ALE/": _ATARI,
    **dict.fromkeys(("Acrobot-", "CartPole-", "MountainCar-"), _DISCRETE),
    "BipedalWalker-": _BIPEDAL,
    "MountainCarContinuous-": _QUICK,
    "Pendulum-": _PENDULUM,
    "Pusher-": _PUSHER,
    "Swimmer-": _SWIMMER,
}
"""By prefix of the environment's name; all others have the usual default."""


def starting_job(env_id: str, algorithm: str = "ppo") -> StartingJob:
    """Return the length and rounds of training, from an environment's name alone."""
    by_name = SEARCHES.get(algorithm, _BY_NAME)
    named = (job for prefix, job in by_name.items() if env_id.startswith(prefix))
    usual = next(named, StartingJob())
    if algorithm not in ALGORITHMS or not ALGORITHMS[algorithm].replays:
        return usual
    fewer = usual.total_steps // _REPLAYED_FEWER_STEPS
    return replace(usual, total_steps=fewer, samples_per_round=_REPLAYED_ROUND)
