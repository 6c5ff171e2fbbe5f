"""Gymnasium's own bare environments whose state is known: MuJoCo, classic control, toy text.

They are listed by module and class name, so that unused environments are not imported. A subclass
does not match, because it may hold more state than its base.
"""

from functools import partial
from typing import Any

import numpy as np

from shared.environments.mujoco_memo import forget_answers
from shared.environments.state.keeper import Arrays, Keeper, number, optional, require_shape

_LIBRARY = "gymnasium.envs."
_MUJOCO = f"{_LIBRARY}mujoco."
_NUMBER: tuple[int, ...] = ()
"""Shape of an attribute that is a number or None."""
_NUMBERS = (-1,)
"""Shape of an attribute that is a list of integers of any length."""

_ATTRIBUTES: dict[str, dict[str, tuple[int, ...]]] = {
    "classic_control.cartpole:CartPoleEnv": {"state": (4,), "steps_beyond_terminated": _NUMBER},
    "classic_control.mountain_car:MountainCarEnv": {"state": (2,)},
    "classic_control.continuous_mountain_car:Continuous_MountainCarEnv": {"state": (2,)},
    "classic_control.pendulum:PendulumEnv": {"state": (2,)},
    "classic_control.acrobot:AcrobotEnv": {"state": (4,)},
    "toy_text.frozen_lake:FrozenLakeEnv": {"s": _NUMBER},
    "toy_text.cliffwalking:CliffWalkingEnv": {"s": _NUMBER},
    "toy_text.taxi:TaxiEnv": {"s": _NUMBER, "fickle_step": _NUMBER},
    "toy_text.blackjack:BlackjackEnv": {"player": _NUMBERS, "dealer": _NUMBERS},
}
"""Attributes that steps read and write, with their shapes. Attributes that only rendering reads are
left out: the next step or reset sets them."""


def library_keeper(kind: type) -> Keeper | None:
    """Return the keeper of a Gymnasium environment type, or None for all other types."""
    if kind.__module__.startswith(_MUJOCO):
        return Keeper(_get_physics, _set_physics)
    name = f"{kind.__module__}:{kind.__qualname__}".removeprefix(_LIBRARY)
    shapes = _ATTRIBUTES.get(name)
    if shapes is None:
        return None
    return Keeper(partial(_get_attributes, shapes), partial(_set_attributes, shapes))


def _get_attributes(shapes: dict[str, tuple[int, ...]], env: object) -> Arrays:
    return {name: optional(getattr(env, name, None)) for name in shapes}


def _set_attributes(shapes: dict[str, tuple[int, ...]], env: object, state: Arrays) -> None:
    for name, shape in shapes.items():
        array = state[name]
        value: Any
        if shape == _NUMBERS:
            value = array.tolist()
        elif shape == _NUMBER or array.shape == (0,):
            value = number(name, array)
        else:
            require_shape(name, array, shape)
            value = array
        setattr(env, name, value)


def _get_physics(env: Any) -> Arrays:  # noqa: ANN401 - MujocoEnv, which is not imported here
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    physics = np.empty(mujoco.mj_stateSize(env.model, kind))
    mujoco.mj_getState(env.model, env.data, physics, kind)
    return {"physics": physics, "version": np.array(mujoco.mj_version())}


def _set_physics(env: Any, state: Arrays) -> None:  # noqa: ANN401
    import mujoco

    if state["version"] != mujoco.mj_version():
        raise ValueError(f"it is of MuJoCo {state['version']}, not {mujoco.mj_version()}")
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    physics = state["physics"]
    require_shape("physics", physics, (mujoco.mj_stateSize(env.model, kind),))
    mujoco.mj_setState(env.model, env.data, physics, kind)
    forget_answers(env)
