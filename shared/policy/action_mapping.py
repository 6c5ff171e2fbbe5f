"""Map a sampled continuous action to the bounds of the environment's box.

The learner trains on the action before this mapping; only the environment sees the result.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shared.hyperparameters.common import ActionMapping
from shared.policy.distributions import Action

Floats = NDArray[np.floating]


def action_map(mapping: ActionMapping, low: Floats, high: Floats) -> Callable[[Action], Floats]:
    """Return a map from sampled actions [..., A] to actions in the box [low, high], of its type.

    `clip` clips actions; `rescale` first maps [-1, 1] onto the box, like RLlib's un-squashing.
    It is fastest for actions of the bounds' shape. The bounds keep their type: a float64 bound
    rounded to float32 may lie outside of the box.

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
    # Halved before the subtraction: the bounds may be as far apart as float32 allows.
    half = (high / 2 - low / 2).astype(np.float32)
    centre = (high / 2 + low / 2).astype(np.float32)
    if not centre.any():
        return lambda action: clip(action * half)  # saves an addition per step
    return lambda action: clip(action * half + centre)
