"""Asking a MuJoCo environment once per step whether it is healthy, where it asks itself twice.

Gymnasium's walkers test their state for the reward and again for the end of the episode; in Hopper
each test costs a tenth of a simulation step. The state does not change in between, so the answer is
kept until the simulation moves on: observations, rewards and ends stay the same to the last bit.
"""

from typing import Any, cast

import gymnasium
import numpy as np
from numpy.typing import NDArray

_BASE_MODULE = "gymnasium.envs.mujoco.mujoco_env"


def remember_health(env: gymnasium.Env[Any, Any]) -> None:
    """Make a bare environment remember its health; nothing happens if it has no such notion."""
    kind: Any = type(env)
    asked = getattr(kind, "is_healthy", None)
    is_mujoco = any(base.__module__ == _BASE_MODULE for base in kind.__mro__)
    if not (is_mujoco and isinstance(asked, property) and asked.fget):
        return
    if kind.do_simulation.__module__ != _BASE_MODULE:
        return  # it steps its simulation in a way of its own
    ask = asked.fget

    def do_simulation(self: Any, ctrl: NDArray[np.floating], n_frames: int) -> None:
        # Without the base's check of the control's shape: a policy that fits the environment's
        # action space, which the actor makes sure of, has no other.
        self.remembered_health = None
        self._step_mujoco_simulation(ctrl, n_frames)

    def set_state(self: Any, qpos: NDArray[np.float64], qvel: NDArray[np.float64]) -> None:
        self.remembered_health = None
        kind.set_state(self, qpos, qvel)

    def is_healthy(self: Any) -> object:
        if self.remembered_health is None:
            self.remembered_health = ask(self)
        return self.remembered_health

    overrides = {
        "__module__": kind.__module__,
        "do_simulation": do_simulation,
        "set_state": set_state,
        "is_healthy": property(is_healthy),
    }
    subclass = type(kind.__name__, (kind,), overrides)
    remembering = cast("Any", env)
    remembering.remembered_health = None
    remembering.__class__ = subclass
