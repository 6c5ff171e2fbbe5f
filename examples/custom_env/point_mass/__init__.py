"""A point mass to be steered to a goal; importing the package registers `Example/PointMass-v0`."""

import gymnasium

gymnasium.register(
    id="Example/PointMass-v0",
    entry_point="point_mass.environment:PointMass",
    max_episode_steps=60,
)
