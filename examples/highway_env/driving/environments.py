"""highway-env's tasks, with their state as arrays.

A task's roads are always the same. What moves on them is the state: the vehicles in their order,
the obstacles, which vehicles are controlled, and the clock.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from highway_env.envs.common.abstract import AbstractEnv
from highway_env.envs.common.graphics import EnvViewer
from highway_env.envs.highway_env import HighwayEnvFast
from highway_env.envs.merge_env import ConnectedLaneMergeEnv
from highway_env.envs.racetrack_env import ConnectedLaneRacetrackEnv
from numpy.typing import NDArray

from driving.traffic import packed, unpacked


class _Kept(AbstractEnv):
    """A task that can be left by one actor and taken up by another."""

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return what the next step depends on; `np_random` is kept for every environment."""
        vehicles, objects = self.road.vehicles, self.road.objects
        controlled = [vehicles.index(vehicle) for vehicle in self.controlled_vehicles]
        return {
            "clock": np.array([self.time, self.steps], np.float64),
            "controlled": np.array(controlled, np.int64),
            "vehicles": packed(vehicles),
            "objects": packed(objects),
        }

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on where another environment of this task was left."""
        vehicles = unpacked(state["vehicles"], self.road)
        objects = unpacked(state["objects"], self.road)
        controlled = [vehicles[index] for index in state["controlled"].tolist()]
        time, steps = state["clock"].tolist()
        self.road.vehicles, self.road.objects = vehicles, objects
        self.road.np_random = self.np_random
        self.controlled_vehicles = controlled
        self.time, self.steps, self.done = time, int(steps), False

    def render(self) -> NDArray[np.uint8] | None:
        """Return a picture [H, W, 3], on a machine without a screen, too."""
        self.viewer = self.viewer or EnvViewer(self)
        # It takes the driver for no screen as a reason to draw nothing, and needs none.
        self.viewer.enabled = True
        return super().render()


class HighwayFast(_Kept, HighwayEnvFast):
    """Three lanes and twenty other vehicles: keep fast, keep right, do not crash."""


class Merge(_Kept, ConnectedLaneMergeEnv):
    """A highway that another vehicle merges into."""


class Racetrack(_Kept, ConnectedLaneRacetrackEnv):
    """Steer along a closed track, seen as a grid around the vehicle."""
