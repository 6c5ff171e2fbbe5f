"""Choices as the frameworks' own policies have them: numbered from 0, and all of them allowed."""

from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete, Space
from numpy.typing import NDArray

from nitro.errors import CommandError
from shared.contracts.environment_spec import EnvironmentSpec


def first_choice(space: Space[Any]) -> NDArray[np.int64] | int:
    """Return what an action numbered from 0 lacks to be one of the space's; 0 for other spaces."""
    if isinstance(space, MultiDiscrete):
        return space.start.astype(np.int64)
    return int(space.start) if isinstance(space, Discrete) else 0


def require_no_mask(environment: EnvironmentSpec) -> None:
    """Refuse an environment whose actors obey a mask of actions: these policies do not.

    Raises:
        CommandError: It has one.
    """
    if environment.mask_size:
        raise CommandError(
            "observations: end with a mask of actions, which actors obey and this framework's "
            "policies do not; leave it out with the wrapper LeaveOut"
        )
