"""How a sampled continuous action reaches the bounds of the environment's box.

The learner learns from the action before this; only the environment sees the result.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shared.hyperparameters.common import ActionMapping
from shared.policy.distributions import Action

Floats = NDArray[np.floating]


def action_map(mapping: ActionMapping, low: Floats, high: Floats) -> Callable[[Action], Floats]:
    """Return what turns sampled actions [..., A] into new ones in the box [low, high], of its type.

    `clip` clips them; `rescale` maps [-1, 1] onto the box first, as RLlib's un-squashing does.
    Fastest where shapes equal the bounds'. The bounds keep their type: rounded to float32, those of
    a float64 box may lie outside of it.

    >>> box = np.zeros(3), np.full(3, 4.0)
    >>> action_map("rescale", *box)(np.float32([-1, 0, 3])).tolist()
    [0.0, 2.0, 4.0]
    >>> action_map("clip", *box)(np.float32([-1, 0, 3])).tolist()
    [0.0, 0.0, 3.0]
    """

    def clip(action: Floats | Action) -> Floats:
        clipped: Floats = np.minimum(np.maximum(action, low), high)
        return clipped if clipped.dtype == low.dtype else clipped.astype(low.dtype)

    if mapping == "clip" or (np.all(low == -1) and np.all(high == 1)):
        return clip
    # Halved before they are subtracted: the bounds may be as far apart as float32 goes.
    half = (high / 2 - low / 2).astype(np.float32)
    centre = (high / 2 + low / 2).astype(np.float32)
    if not centre.any():
        return lambda action: clip(action * half)  # an addition less per step
    return lambda action: clip(action * half + centre)
