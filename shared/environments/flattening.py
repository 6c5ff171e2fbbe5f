"""What to advise where observations have several parts: a wrapper that works, or none."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Space, Tuple, flatten_space

_OWN = "a wrapper of your own (docs/environments.md, Wrappers)"


def flattening_advice(space: Space[Any], *, image_side: int, most_values: int) -> str:
    """Return what makes a vector of observations, if anything sensible does.

    Args:
        space: Of the observations; no box.
        image_side: Pixels from which on a part of bytes is a picture.
        most_values: Numbers that an observation may have.
    """
    for name, part in _parts("", space):
        if "mask" in name.lower():
            return (
                f"its part {name} looks like a mask of actions, which policies here would not obey:"
                f" leave it out with {_OWN}, and let forbidden actions do nothing"
            )
        if _is_picture(part, image_side):
            return (
                f"its part {name or 'of pixels'} is a picture, which only a network for images "
                f"learns from: keep that part alone with {_OWN}"
            )
        try:
            flatten_space(part)
        except Exception:  # a space of somebody else's may raise anything
            return (
                f"its part {name} ({part!s:.60}) cannot be made numbers: leave it out with {_OWN}"
            )
    flat = flatten_space(space)
    if not isinstance(flat, Box) or int(np.prod(flat.shape)) > most_values:
        return f"keep fewer numbers with {_OWN}"
    return (
        "if a plain vector of all its parts will do, name Gymnasium's wrapper: "
        "wrappers=[{name: FlattenObservation}]"
    )


def _parts(name: str, space: Space[Any]) -> Iterator[tuple[str, Space[Any]]]:
    """Yield every part that has no parts itself, with its name."""
    if isinstance(space, Dict):
        for key, part in space.spaces.items():
            yield from _parts(f"{name}.{key}".lstrip("."), part)
    elif isinstance(space, Tuple):
        for index, part in enumerate(space.spaces):
            yield from _parts(f"{name}.{index}".lstrip("."), part)
    else:
        yield name, space


def _is_picture(space: Space[Any], side: int) -> bool:
    is_bytes = isinstance(space, Box) and space.dtype == np.uint8
    shape = space.shape or ()
    return is_bytes and len(shape) >= 2 and sorted(shape)[-2] >= side
