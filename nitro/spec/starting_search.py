"""The jobs that searches start from, by the environment's name."""

from collections.abc import Mapping

from pydantic import JsonValue

from nitro.spec.start import StartingJob


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
        reason="own: with arXiv 1803.07055's one direction and 0.01 many seeds stay below 100",
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
