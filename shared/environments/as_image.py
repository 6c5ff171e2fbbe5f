"""A wrapper that marks observations of any size as images."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Space, Tuple

from shared.environments import parts as all_parts
from shared.environments.parts import ImageBox, Part
from shared.policy.blocks import SMALLEST_SIDE

Env = gymnasium.Env[Any, Any]  # the spaces determine observations and actions


class AsImage(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Marks bytes with two or three axes as an image, so that small filters see the grid.

    Without this wrapper, an image with a side below 36 pixels is flattened.
    """

    def __init__(self, env: Env, parts: str = "") -> None:
        """Take comma-separated names of parts; an empty text makes the whole observation one image.

        Raises:
            ValueError: A name matches no part, or the part does not hold such bytes.
        """
        super().__init__(env)
        names = {name.strip() for name in parts.split(",")}
        known = [part.name for part in all_parts.parts(env.observation_space)]
        for name in names.difference(known):
            raise ValueError(f"observations have no part {name!r}; there are: {', '.join(known)}")
        self.observation_space = _marked(env.observation_space, names, ())

    def observation(self, observation: Any) -> Any:
        """Return the observation unchanged."""
        return observation


def _marked(space: Space[Any], names: set[str], keys: tuple[str | int, ...]) -> Space[Any]:
    """Return a space with an image in place of each part that has one of these names."""
    if isinstance(space, Dict):
        return Dict({key: _marked(each, names, (*keys, key)) for key, each in space.items()})
    if isinstance(space, Tuple):
        return Tuple([_marked(each, names, (*keys, i)) for i, each in enumerate(space)])
    name = Part(keys, space).name
    if name not in names:
        return space
    shape = space.shape or ()
    fits = space.dtype == np.uint8 and 2 <= len(shape) <= 4
    if not (isinstance(space, Box) and fits and sorted(shape)[-2] >= SMALLEST_SIDE):
        raise ValueError(
            f"part {name or 'observation'} is {space!s:.80}; images are uint8, [H, W] or [H, W, C] "
            f"or stacks of those, with sides from {SMALLEST_SIDE} pixels"
        )
    return ImageBox.of(space.low, space.high)
