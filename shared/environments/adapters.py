"""Wrappers that bring any supported environment into the form policies know.

Observations become vectors, or images with the channels first; actions become one number, a vector
of real numbers, or a vector of choices. An environment that has that form already is left alone.
"""

from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.spaces import Box, MultiBinary, MultiDiscrete, flatten, flatten_space
from numpy.typing import NDArray

from shared.environments.parts import Part, parts
from shared.environments.spaces import checked_observation, has_parts, is_image

Env = gymnasium.Env[Any, Any]  # observations and actions are whatever the spaces say


class PartsObservation(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Puts all parts into one vector, choices as one 1 among zeros, as Gymnasium's `flatten` does.

    Unlike that, it names the part that is not what the space says.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._parts = tuple(parts(env.observation_space))
        self._box = cast("Box", flatten_space(env.observation_space))
        self.observation_space = self._box

    def observation(self, observation: object) -> NDArray[Any]:
        """Return the numbers in a row."""
        rows = [_row(part, observation) for part in self._parts]
        return np.concatenate(rows).astype(self._box.dtype, copy=False)


def _row(part: Part, observation: object) -> NDArray[Any]:
    value, space = part.of(observation), part.space
    try:
        if isinstance(space, Box):
            return checked_observation(value, space).reshape(-1)
        if not space.contains(value):
            raise ValueError(f"{value!r:.100} is not in {space}")
        return np.asarray(flatten(space, value))
    except (ValueError, TypeError, IndexError) as error:
        raise ValueError(f"part {part.name or 'observation'}: {error}") from error


class VectorObservation(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Flattens boxes of any shape, in C order."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._box = cast("Box", env.observation_space)
        self.observation_space = Box(
            self._box.low.reshape(-1), self._box.high.reshape(-1), dtype=self._box.dtype.type
        )

    def observation(self, observation: object) -> NDArray[Any]:
        """Return the numbers in a row."""
        return checked_observation(observation, self._box).reshape(-1)


class ChannelsFirst(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Makes images [C, H, W] of [H, W], [H, W, C] and stacks [S, H, W, C] of them (C = S * C)."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._box = cast("Box", env.observation_space)
        low, high = self._turned(self._box.low), self._turned(self._box.high)
        self.observation_space = Box(low, high, dtype=np.uint8)

    def observation(self, observation: object) -> NDArray[np.uint8]:
        """Return the image with its channels first."""
        return self._turned(checked_observation(observation, self._box))

    def _turned(self, image: NDArray[Any]) -> NDArray[np.uint8]:
        if image.ndim == 2:
            return image[np.newaxis]
        if image.shape[-1] < image.shape[-3]:
            image = np.moveaxis(image, -1, -3)
        return np.ascontiguousarray(image).reshape(-1, *image.shape[-2:])


class FlatAction(gymnasium.ActionWrapper[Any, Any, Any]):
    """Takes actions of any shape as a vector: of real numbers, or of choices."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        inner = env.action_space
        self._shape, self._dtype = inner.shape, inner.dtype
        if isinstance(inner, Box):
            low, high = inner.low.reshape(-1), inner.high.reshape(-1)
            self.action_space = Box(low, high, dtype=inner.dtype.type)
        elif isinstance(inner, MultiDiscrete):
            self.action_space = MultiDiscrete(inner.nvec.reshape(-1), start=inner.start.reshape(-1))
        else:
            self.action_space = MultiDiscrete(np.full(int(np.prod(inner.shape or ())), 2))

    def action(self, action: NDArray[Any]) -> NDArray[Any]:
        """Return the action in the environment's own shape and type."""
        return np.asarray(action, self._dtype).reshape(self._shape or ())


def adapted(env: Env) -> Env:
    """Return the environment in the form that policies know, wrapped no more than it must be.

    Its spaces have passed the checks of `shared.environments.spaces`.
    """
    if has_parts(env.observation_space):
        env = PartsObservation(env)
    observation, action = cast("Box", env.observation_space), env.action_space
    if is_image(observation):
        shape = observation.shape
        if len(shape) != 3 or shape[-1] < shape[0]:
            env = ChannelsFirst(env)
    elif len(observation.shape) != 1:
        env = VectorObservation(env)
    is_vector = isinstance(action, Box | MultiDiscrete) and len(action.shape) == 1
    if isinstance(action, Box | MultiDiscrete | MultiBinary) and not is_vector:
        env = FlatAction(env)
    return env
