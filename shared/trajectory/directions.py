"""Directions in the space of a policy's weights, identified by their number alone.

Directions are never sent. Learner and actors each derive them from the job's seed, the iteration
and the direction's number.

Legend: n weights and biases of a policy, layer by layer, each weight before its bias. A linear
policy has no bias, as in arXiv 1803.07055.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from shared.policy.spec import PolicySpec
from shared.trajectory.seeds import actor_seed

_LAYERS, _BIAS = "policy.", ".bias"


def direction(job_seed: int, iteration: int, index: int, size: int) -> NDArray[np.float64]:
    """Return a direction: independent standard normal numbers # [n]."""
    seed = actor_seed(job_seed, mode="direction", round_index=iteration, actor_index=index)
    return np.random.default_rng(seed).standard_normal(size)


def weight_shapes(spec: PolicySpec) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays that directions perturb, in order."""
    shapes = {name: shape for name, shape in spec.shapes.items() if name.startswith(_LAYERS)}
    if len(shapes) == 2:  # a weight and a bias: one layer
        return {name: shape for name, shape in shapes.items() if not name.endswith(_BIAS)}
    return shapes


def flat_weights(
    spec: PolicySpec, arrays: Mapping[str, NDArray[np.float32]]
) -> NDArray[np.float64]:
    """Return a policy's weights and biases, flattened # [n]."""
    return np.concatenate([arrays[name].ravel() for name in weight_shapes(spec)], dtype=np.float64)


def shaped_weights(spec: PolicySpec, flat: NDArray[np.float64]) -> dict[str, NDArray[np.float32]]:
    """Return flat numbers # [n] as a policy's weights and biases."""
    shapes = weight_shapes(spec)
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    parts = np.split(flat.astype(np.float32), ends[:-1])
    return {
        name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }
