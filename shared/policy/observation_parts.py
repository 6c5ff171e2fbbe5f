"""The names and sizes of an observation's parts in a policy's metadata, for messages.

A policy takes a row of numbers. It does not know its environment's spaces, so it cannot make the
row from a dict or a tuple of parts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.contracts.environment_spec import ObservationSpec
from shared.policy.head import PolicyError

OBSERVATION_PARTS = "observation_parts"


def with_parts(metadata: Mapping[str, str], observation: ObservationSpec) -> dict[str, str]:
    """Return a policy's metadata with the parts of observations, such as `state 7, turn 4`."""
    told = ", ".join(f"{name or 'observation'} {size}" for name, size in observation.parts)
    return {**metadata, OBSERVATION_PARTS: told} if told else {**metadata}


def as_array(observation: object, shape: Sequence[int], parts: str) -> NDArray[Any]:
    """Return observations as an array [..., *shape].

    Args:
        observation: One or several observations.
        shape: Shape of one.
        parts: The metadata's parts; empty if unknown.

    Raises:
        PolicyError: They are no array, or its last axes differ from the shape.
    """
    found: NDArray[Any] | None = None
    if not isinstance(observation, Mapping):
        try:
            found = np.asarray(observation)
        except ValueError:  # its parts have several shapes
            found = None
    if found is not None and found.shape[max(0, found.ndim - len(shape)) :] == tuple(shape):
        return found
    what = f"is a {type(observation).__name__}" if found is None else f"has shape {found.shape}"
    order = f", in this order: {parts} (choices one-hot, images channels-first)" if parts else ""
    raise PolicyError(f"observation {what}, expected (..., {', '.join(map(str, shape))}){order}")
