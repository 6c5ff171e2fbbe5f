"""How a sampled continuous action reaches the bounds of the environment's box.

The learner learns from the action before this; only the environment sees the result.
"""

from collections.abc import Callable
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from shared.hyperparameters.common import ActionMapping
from shared.policy.distributions import Action

Floats = NDArray[np.floating]

ACTION_MAPPINGS: tuple[ActionMapping, ...] = get_args(ActionMapping)


class ActionClip:
    """Clips actions to a box; fastest where shapes equal the bounds'.

    The bounds keep their type: rounded to float32, those of a float64 box may lie outside of it.
    """

    def __init__(self, low: Floats, high: Floats) -> None:
        self._low, self._high = low, high
        self._dtype = low.dtype

    def apply(self, action: Action) -> Floats:
        """Return new actions for the environment, of the box's type."""
        clipped: Floats = np.minimum(np.maximum(action, self._low), self._high)
        return clipped if clipped.dtype == self._dtype else clipped.astype(self._dtype)


class ActionScale(ActionClip):
    """Maps actions from [-1, 1] onto a box, then clips to it, as RLlib's un-squashing does."""

    def __init__(self, low: Floats, high: Floats) -> None:
        super().__init__(low, high)
        # Halved before they are subtracted: the bounds may be as far apart as float32 goes.
        half, centre = high / 2 - low / 2, high / 2 + low / 2
        self._half = half.astype(np.float32)
        # None where it adds nothing: an addition less per step.
        self._centre = centre.astype(np.float32) if centre.any() else None
        self._is_identity = bool(np.all(low == -1) and np.all(high == 1))

    def apply(self, action: Action) -> Floats:
        """Return new actions for the environment, of the box's type."""
        scaled = action if self._is_identity else action * self._half
        if self._centre is not None:
            scaled = scaled + self._centre
        return super().apply(scaled)


def action_map(mapping: ActionMapping, low: Floats, high: Floats) -> Callable[[Action], Floats]:
    """Return what turns sampled actions [..., A] into ones in the box [low, high].

    >>> box = np.zeros(3), np.full(3, 4.0)
    >>> action_map("rescale", *box)(np.float32([-1, 0, 3])).tolist()
    [0.0, 2.0, 4.0]
    >>> action_map("clip", *box)(np.float32([-1, 0, 3])).tolist()
    [0.0, 0.0, 3.0]
    """
    return ActionClip(low, high).apply if mapping == "clip" else ActionScale(low, high).apply
