"""Discrete actions as in the frameworks' own policies: numbered from 0, without a mask."""

from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete, Space
from numpy.typing import NDArray

from nitro.errors import CommandError
from shared.contracts.environment_spec import EnvironmentSpec


def first_choice(space: Space[Any]) -> NDArray[np.int64] | int:
    """Return the offset from actions numbered from 0 to a space's actions; 0 for other spaces."""
    if isinstance(space, MultiDiscrete):
        return space.start.astype(np.int64)
    return int(space.start) if isinstance(space, Discrete) else 0


def require_no_mask(environment: EnvironmentSpec) -> None:
    """Refuse an environment with an action mask, which these policies do not support.

    Raises:
        CommandError: The environment has a mask.
    """
    if environment.mask_size:
        raise CommandError(
            "observations: end with a mask of actions, which actors obey and this framework's "
            "policies do not; leave it out with the wrapper LeaveOut"
        )
