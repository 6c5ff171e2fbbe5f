"""How a sampled continuous action reaches the bounds of the environment's box.

The learner learns from the action before this; only the environment sees the result.
"""

from collections.abc import Callable
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from shared.distributions import Action, Float32
from shared.ppo_hyperparameters import ActionMapping

ACTION_MAPPINGS: tuple[ActionMapping, ...] = get_args(ActionMapping)


class ActionClip:
    """Clips actions to a box; fastest where shapes equal the bounds'."""

    def __init__(self, low: NDArray[np.floating], high: NDArray[np.floating]) -> None:
        self._low = low.astype(np.float32)
        self._high = high.astype(np.float32)

    def apply(self, action: Action) -> Float32:
        """Return new actions for the environment."""
        clipped: Float32 = np.minimum(np.maximum(action, self._low), self._high)
        return clipped


class ActionScale(ActionClip):
    """Maps actions from [-1, 1] onto a box, then clips to it, as RLlib's un-squashing does."""

    def __init__(self, low: NDArray[np.floating], high: NDArray[np.floating]) -> None:
        super().__init__(low, high)
        # Halved before they are subtracted: the bounds may be as far apart as float32 goes.
        half, centre = high / 2 - low / 2, high / 2 + low / 2
        self._half = half.astype(np.float32)
        # None where it adds nothing: an addition less per step.
        self._centre = centre.astype(np.float32) if centre.any() else None
        self._is_identity = bool(np.all(low == -1) and np.all(high == 1))

    def apply(self, action: Action) -> Float32:
        """Return new actions for the environment."""
        scaled = action if self._is_identity else action * self._half
        if self._centre is not None:
            scaled = scaled + self._centre
        clipped: Float32 = np.minimum(np.maximum(scaled, self._low), self._high)
        return clipped


def action_map(
    mapping: ActionMapping, low: NDArray[np.floating], high: NDArray[np.floating]
) -> Callable[[Action], Float32]:
    """Return what turns sampled actions [..., A] into ones in the box [low, high].

    >>> box = np.zeros(3), np.full(3, 4.0)
    >>> action_map("rescale", *box)(np.float32([-1, 0, 3])).tolist()
    [0.0, 2.0, 4.0]
    >>> action_map("clip", *box)(np.float32([-1, 0, 3])).tolist()
    [0.0, 0.0, 3.0]
    """
    return ActionClip(low, high).apply if mapping == "clip" else ActionScale(low, high).apply
