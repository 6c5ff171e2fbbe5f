"""Simulators of others as both contestants take them: with observations that are one vector.

Each is registered at once and imported when it is made, so that only its runs need its package:
`pip install -c constraints.txt highway-env gymnasium-robotics`.
"""

from typing import Any

import gymnasium
from gymnasium.wrappers import FlattenObservation


def fetch_reach(**kwargs: Any) -> gymnasium.Env[Any, Any]:
    """Return gymnasium-robotics' arm that moves its hand to a goal; its reward is the distance."""
    import gymnasium_robotics

    gymnasium.register_envs(gymnasium_robotics)
    return FlattenObservation(gymnasium.make("FetchReachDense-v4", **kwargs).unwrapped)


def highway(**kwargs: Any) -> gymnasium.Env[Any, Any]:
    """Return highway-env's car in traffic, in the variant with fewer vehicles."""
    import highway_env

    gymnasium.register_envs(highway_env)
    return FlattenObservation(gymnasium.make("highway-fast-v0", **kwargs).unwrapped)


for _name, _make, _limit in (
    ("Benchmarks/FetchReachDense-v4", fetch_reach, 50),
    ("Benchmarks/HighwayFast-v0", highway, 30),
):
    if _name not in gymnasium.registry:
        gymnasium.register(_name, entry_point=_make, max_episode_steps=_limit)
