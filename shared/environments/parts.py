"""The parts of an observation: names, images, and parts that a policy cannot learn from."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from gymnasium.spaces import Box, Dict, MultiBinary, Space, Text, Tuple, flatdim, flatten_space
from numpy.typing import NDArray

from shared.policy.blocks import MIN_IMAGE_SIDE

MASK = "action_mask"
"""PettingZoo's name for the part that holds the mask of allowed actions."""


class ImageBox(Box):
    """An image of bytes of any size; other spaces treat tiny images as plain numbers."""

    @classmethod
    def of(cls, low: NDArray[Any], high: NDArray[Any]) -> "ImageBox":
        """Return the space of images between two bounds."""
        given: dict[str, Any] = {"dtype": np.uint8}  # a subclass is typed as of floats
        return cls(low, high, **given)


def channels_first(image: NDArray[Any]) -> NDArray[Any]:
    """Return an image [H, W] or [H, W, C], or a stack [S, H, W, C], as [S * C, H, W]."""
    if image.ndim == 2:
        return image[np.newaxis]
    if image.shape[-1] < image.shape[-3]:
        image = np.moveaxis(image, -1, -3)
    return np.ascontiguousarray(image).reshape(-1, *image.shape[-2:])


def is_image(space: Space[Any]) -> bool:
    """Whether observations are images: uint8, two or three axes or a stack of such, not tiny."""
    if isinstance(space, ImageBox):
        return True
    return _is_picture(space) and len(space.shape or ()) <= 4


@dataclass(frozen=True, slots=True)
class Part:
    """A leaf of an observation: a part without parts of its own."""

    keys: tuple[str | int, ...]
    """Path in the observation; empty if the whole observation is the part."""
    space: Space[Any]

    @property
    def name(self) -> str:
        """Its keys with dots between them."""
        return ".".join(map(str, self.keys))

    @property
    def is_mask(self) -> bool:
        """Whether it is the mask of allowed actions."""
        return self.name.rpartition(".")[2] == MASK

    @property
    def is_image(self) -> bool:
        """Whether it is an image for a convolutional network."""
        return is_image(self.space) and not self.is_mask

    @property
    def fits_bytes(self) -> bool:
        """Whether all of its values are integers from 0 to 255."""
        is_box = isinstance(self.space, Box) and not self.is_mask
        return not is_box or self.space.dtype == np.uint8

    @property
    def bounds(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Its lowest and highest values: [C, H, W] for an image, otherwise flat."""
        if self.is_image:
            box = cast("Box", self.space)
            return channels_first(box.low), channels_first(box.high)
        flat = cast("Box", flatten_space(self.space))
        return flat.low, flat.high

    def of(self, observation: Any) -> Any:  # noqa: ANN401 - whatever the environment gives
        """Return its value in an observation.

        Raises:
            ValueError: The observation does not have it.
        """
        for key in self.keys:
            try:
                observation = observation[key]
            except (KeyError, IndexError, TypeError):
                raise ValueError(f"the observation has no part {self.name}") from None
        return observation


def parts(space: Space[Any], keys: tuple[str | int, ...] = ()) -> Iterator[Part]:
    """Yield all parts, in the order in which Gymnasium flattens them."""
    if isinstance(space, Dict):
        for key, part in space.spaces.items():
            yield from parts(part, (*keys, key))
    elif isinstance(space, Tuple):
        for index, part in enumerate(space.spaces):
            yield from parts(part, (*keys, index))
    else:
        yield Part(keys, space)


def in_order(space: Space[Any]) -> list[Part]:
    """Return all parts in the policy's order: images first, the action mask last."""
    return sorted(parts(space), key=lambda part: (part.is_mask, not part.is_image))


def obstacle(space: Space[Any], *, num_choices: int | None, most_values: int) -> str | None:
    """Return why parts cannot be put into one row, and a remedy; None if they can.

    Args:
        space: Observation space, not a box.
        num_choices: Size of an action mask; None if actions are not discrete.
        most_values: Largest size of an observation.
    """
    found = list(parts(space))
    masks = [part for part in found if part.is_mask]
    if len(masks) > 1:
        return f"it has {len(masks)} masks of actions: leave some out; {_leaving_out(masks[1:])}"
    for part in found:
        if part.is_mask and not _fits(part.space, num_choices):
            wanted = (
                "actions that are no choices have none"
                if num_choices is None
                else f"a mask of these actions is MultiBinary({num_choices})"
            )
            return (
                f"its part {part.name} is {part.space!s:.60}, and {wanted}: leave it out; "
                f"{_leaving_out([part])}"
            )
        if _is_picture(part.space) and not part.is_image:
            return (
                f"its part {part.name} has {len(part.space.shape or ())} axes, and images have two "
                f"or three, stacks of them four: leave it out; {_leaving_out([part])}"
            )
        if not _is_numeric(part.space):
            return (
                f"its part {part.name} ({part.space!s:.60}) cannot be made numbers: leave it out; "
                f"{_leaving_out([part])}"
            )
    if flatdim(space) > most_values:
        return "keep fewer numbers with a wrapper of your own (docs/environments.md, Wrappers)"
    return None


def _fits(space: Space[Any], num_choices: int | None) -> bool:
    is_mask = isinstance(space, MultiBinary | Box) and len(space.shape or ()) == 1
    return is_mask and space.shape == (num_choices,)


def _is_numeric(space: Space[Any]) -> bool:
    if isinstance(space, Text):  # Gymnasium turns its letters into numbers
        return False
    try:
        return isinstance(flatten_space(space), Box)
    except Exception:  # a third-party space may raise anything
        return False


def _leaving_out(left_out: list[Part]) -> str:
    names = ",".join(part.name for part in left_out)
    return f'wrappers=[{{"name": "LeaveOut", "kwargs": {{"parts": "{names}"}}}}]'


def _is_picture(space: Space[Any]) -> bool:
    is_bytes = isinstance(space, Box) and space.dtype == np.uint8
    shape = space.shape or ()
    return is_bytes and len(shape) >= 2 and sorted(shape)[-2] >= MIN_IMAGE_SIDE
