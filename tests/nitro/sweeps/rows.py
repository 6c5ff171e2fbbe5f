"""Rows of a sweep as they might have ended."""

from collections.abc import Sequence
from typing import Any

from nitro.sweeps.rows import Outcome, Point, Row
from shared.contracts.job_spec import JobSpec


def ended(env_id: str, setting: str, seed: int, curve: Sequence[float], **fields: Any) -> Row:
    """Return a finished row with an evaluation every 1,000 steps."""
    points = tuple(Point(1000.0 * index, value) for index, value in enumerate(curve))
    outcome = Outcome(
        rounds=len(curve), env_steps=1000 * len(curve), curve=points, spent_usd=0.01, wall_s=2.0
    )
    spec = JobSpec(env_id=env_id, seed=seed)
    made = Row(env_id=env_id, setting=setting, seed=seed, spec=spec, job_id=f"job-{seed}")
    return made.model_copy(update={"status": "finished", "outcome": outcome, **fields})


def two_by_two() -> list[Row]:
    """Return two settings on two environments, four seeds each."""
    return [
        ended(env_id, setting, seed, (first, first + gain * seed))
        for env_id, first in (("CartPole-v1", 20.0), ("Acrobot-v1", -500.0))
        for setting, gain in (("ppo", 10.0), ("im_pact", 20.0))
        for seed in (1, 2, 3, 4)
    ]
