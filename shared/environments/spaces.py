"""Gymnasium spaces that Nitro can train on, and their form for a policy.

A policy sees float32 vectors, channels-first uint8 images, or both in a row.
`shared.environments.adapters` brings an environment's observations and actions into this form.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from numpy.typing import NDArray

from shared.contracts.environment_spec import (
    ActionSpec,
    ContinuousActionSpec,
    DiscreteActionSpec,
    MultiDiscreteActionSpec,
    ObservationSpec,
)
from shared.environments.parts import is_image, obstacle
from shared.policy.head import MAX_CHOICES

_MAX_VALUES = 2**20
"""Numbers per observation; a cache could not hold a useful number of larger observations."""
_NUMBERS = "fiub"
"""NumPy's kinds of real numbers: float, signed, unsigned, boolean."""


class UnsupportedEnvironment(ValueError):  # noqa: N818 - names the fault, like Gymnasium's errors
    """An environment that does not exist, cannot be built or cannot be trained on."""


class RowBox(Box):
    """Adapted observations of parts in a row, images first."""

    images: tuple[tuple[int, ...], ...] = ()
    """Channels, height and width of each."""
    parts: tuple[tuple[str, int], ...] = ()
    """Name and size of each part."""


def wire_type(space: Space[Any]) -> type[np.uint8 | np.float32]:
    """Return the type in which adapted observations travel."""
    has_images = is_image(space) or (isinstance(space, RowBox) and bool(space.images))
    return np.uint8 if has_images and space.dtype == np.uint8 else np.float32


def has_parts(space: Space[Any]) -> bool:
    """Whether observations have several parts or are discrete: policies see them as one row."""
    return isinstance(space, Dict | Tuple | Discrete | MultiBinary | MultiDiscrete)


def num_choices(space: Space[Any]) -> int | None:
    """Return the size of an action mask; None if actions are not discrete."""
    if isinstance(space, Discrete):
        return int(space.n)
    if isinstance(space, MultiDiscrete):
        return int(space.nvec.sum())
    return 2 * int(np.prod(space.shape or ())) if isinstance(space, MultiBinary) else None


def require_spaces(env_id: str, env: gymnasium.Env[Any, Any]) -> None:
    """Refuse an environment that has not set its spaces.

    Raises:
        UnsupportedEnvironment: A space is missing, or another object is in its place.
    """
    for name in ("observation_space", "action_space"):
        found = getattr(env, name, None)
        if not isinstance(found, Space):
            what = "" if found is None else f" but {found!r:.80}"
            raise UnsupportedEnvironment(
                f"env_id {env_id!r} has no {name}{what}: set self.{name} in its constructor to a "
                "space of gymnasium.spaces"
            )


def check_observation_space(env_id: str, space: Space[Any], action: Space[Any]) -> None:
    """Refuse observations that none of Nitro's policies can take.

    Args:
        env_id: The environment's id.
        space: Observation space.
        action: Action space, which a mask must fit.

    Raises:
        UnsupportedEnvironment: With the reason.
    """
    seen = f"env_id {env_id!r} has observations {space!s:.200}"
    if has_parts(space):
        why_not = obstacle(
            space,
            num_choices=num_choices(action),
            most_values=_MAX_VALUES,
        )
        if why_not is not None:
            raise UnsupportedEnvironment(f"env_id {env_id!r} has observations of parts; {why_not}")
        return
    if not (isinstance(space, Box) and space.dtype.kind in _NUMBERS):
        raise UnsupportedEnvironment(f"{seen}; supported are boxes of real numbers")
    num_values = int(np.prod(space.shape, dtype=np.int64))
    if not space.shape or not 1 <= num_values <= _MAX_VALUES:
        raise UnsupportedEnvironment(
            f"{seen} of shape {space.shape}; supported are 1 to {_MAX_VALUES} numbers in at least "
            "one dimension"
        )


def check_action_space(env_id: str, space: Space[Any]) -> None:
    """Refuse actions that none of Nitro's policies can choose.

    Raises:
        UnsupportedEnvironment: With the reason.
    """
    taken = f"env_id {env_id!r} has actions {space!s:.200}"
    is_box = isinstance(space, Box) and space.dtype.kind == "f"
    if not (is_box or isinstance(space, Discrete | MultiDiscrete | MultiBinary)):
        raise UnsupportedEnvironment(
            f"{taken}; supported are Discrete, MultiDiscrete, MultiBinary and boxes of floats"
        )
    num_values = int(np.prod(space.shape or (), dtype=np.int64))
    if not num_values:
        raise UnsupportedEnvironment(f"{taken}: there is nothing to choose")
    if isinstance(space, Box):
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise UnsupportedEnvironment(
                f"env_id {env_id!r} has unbounded actions {space!s:.200}; every action needs "
                "finite bounds to be scaled to: name the wrapper that sets them, "
                'wrappers=[{"name": "BoundAction", "kwargs": {"low": -1.0, "high": 1.0}}]'
            )
    elif num_values > MAX_CHOICES:
        raise UnsupportedEnvironment(
            f"{taken}: {num_values} choices, a policy makes at most {MAX_CHOICES} at once"
        )


def observation_spec(space: Space[Any]) -> ObservationSpec:
    """Return the learner's description of adapted observations."""
    said: dict[str, object] = {"shape": space.shape, "dtype": wire_type(space).__name__}
    if isinstance(space, RowBox):
        said |= {"images": space.images, "parts": space.parts}
    return ObservationSpec.model_validate(said)


def action_spec(space: Space[Any]) -> ActionSpec:
    """Return the learner's description of adapted actions."""
    if isinstance(space, Discrete):
        return DiscreteActionSpec(n=int(space.n), start=int(space.start))
    if isinstance(space, MultiDiscrete):
        starts = tuple(space.start.tolist()) if space.start.any() else ()
        return MultiDiscreteActionSpec(num_choices=tuple(space.nvec.tolist()), starts=starts)
    if isinstance(space, Box):
        return ContinuousActionSpec(low=tuple(space.low.tolist()), high=tuple(space.high.tolist()))
    raise TypeError(f"{space} is no adapted action space")


def checked_observation(observation: object, space: Space[Any]) -> NDArray[Any]:
    """Return an observation as an array, if it fits a box.

    Raises:
        ValueError: It does not fit; the message shows the observation and the space.
    """
    array = np.asarray(observation)
    wrong_type = array.dtype.kind not in _NUMBERS or (
        space.dtype == np.uint8 and array.dtype != np.uint8
    )
    if array.shape != space.shape or wrong_type:
        raise ValueError(
            f"the observation has shape {array.shape} and type {array.dtype}, but its space says "
            f"{space!s:.200}"
        )
    return array
