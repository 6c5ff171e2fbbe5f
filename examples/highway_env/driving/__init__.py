"""Three tasks of highway-env whose episodes can go on elsewhere; importing this registers them.

Each is the library's own task but for the limit of its episodes, which the library has on its own
clock or not at all.
"""

import gymnasium

gymnasium.register(
    id="Driving/HighwayFast-v0",
    entry_point="driving.environments:HighwayFast",
    max_episode_steps=30,
)
gymnasium.register(
    id="Driving/Merge-v1", entry_point="driving.environments:Merge", max_episode_steps=30
)
gymnasium.register(
    id="Driving/Racetrack-v1", entry_point="driving.environments:Racetrack", max_episode_steps=300
)
