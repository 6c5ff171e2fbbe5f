"""Where an environment's choices begin: the frameworks' own policies number theirs from 0."""

from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete, Space
from numpy.typing import NDArray


def first_choice(space: Space[Any]) -> NDArray[np.int64] | int:
    """Return what an action numbered from 0 lacks to be one of the space's; 0 for other spaces."""
    if isinstance(space, MultiDiscrete):
        return space.start.astype(np.int64)
    return int(space.start) if isinstance(space, Discrete) else 0
