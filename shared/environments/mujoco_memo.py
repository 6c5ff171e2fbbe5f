"""Memoise values that MuJoCo environments compute twice for the same state.

Gymnasium's walkers test their health for the reward and again for the end of the episode; in Hopper
each test costs a tenth of a simulation step. Its humanoids compute the centre of mass at the end of
a step and again, in the same state, at the start of the next. The results are kept until the
simulation moves on: observations, rewards and ends stay bit-identical.
"""

from types import FunctionType
from typing import Any, cast

import gymnasium
import numpy as np
from numpy.typing import NDArray

_LIBRARY = "gymnasium.envs.mujoco."
_BASE_MODULE = f"{_LIBRARY}mujoco_env"


def remember_answers(env: gymnasium.Env[Any, Any]) -> None:
    """Make one of Gymnasium's bare environments memoise its health and centre of mass.

    Environments that have neither, or are not Gymnasium's own, are left alone.
    """
    kind: Any = type(env)
    asked = getattr(kind, "is_healthy", None)
    # A user's subclass is excluded: it may change the state between the two calls.
    is_mujoco = kind.__module__.startswith(_LIBRARY)
    if not (is_mujoco and isinstance(asked, property) and asked.fget):
        return
    if kind.do_simulation.__module__ != _BASE_MODULE:
        return  # it steps its simulation in its own way
    ask = asked.fget

    def do_simulation(self: Any, ctrl: NDArray[np.floating], n_frames: int) -> None:
        # The base class's check of the control's shape is skipped: the actor has checked that the
        # policy fits the action space.
        self.remembered_health = self.remembered_centre = None
        self._step_mujoco_simulation(ctrl, n_frames)

    def set_state(self: Any, qpos: NDArray[np.float64], qvel: NDArray[np.float64]) -> None:
        self.remembered_health = self.remembered_centre = None
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
    remembering = cast("Any", env)
    step = kind.step
    if isinstance(step, FunctionType) and "mass_center" in step.__globals__:
        overrides["step"] = _step_remembering_the_centre(remembering, step)
    forget_answers(env)
    remembering.__class__ = type(kind.__name__, (kind,), overrides)


def forget_answers(env: gymnasium.Env[Any, Any]) -> None:
    """Forget the memoised values, because the state was changed from outside."""
    remembering = cast("Any", env)
    remembering.remembered_health = remembering.remembered_centre = None


def _step_remembering_the_centre(env: Any, step: FunctionType) -> FunctionType:
    """Return the environment's own step with a memoising `mass_center` in its globals.

    Gymnasium's module keeps its function, so other environments of the process are unaffected.
    """
    weigh = step.__globals__["mass_center"]

    def mass_center(model: object, data: object) -> object:
        if env.remembered_centre is None:
            env.remembered_centre = weigh(model, data)
        return env.remembered_centre

    names = {**step.__globals__, "mass_center": mass_center}
    return FunctionType(step.__code__, names, step.__name__, step.__defaults__, step.__closure__)
