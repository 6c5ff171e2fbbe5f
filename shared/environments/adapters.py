"""Wrappers that bring any supported environment into the form that policies expect.

Observations become vectors, channels-first images, or both in a row. Actions become one number, a
vector of real numbers, or a vector of choices. An environment already in this form is left alone.
"""

from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.spaces import (
    Box,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Space,
    flatdim,
    flatten,
)
from numpy.typing import NDArray

from shared.environments.parts import ImageBox, Part, channels_first, in_order, is_image
from shared.environments.spaces import RowBox, checked_observation, has_parts

Env = gymnasium.Env[Any, Any]  # the spaces determine observations and actions


class PartsObservation(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Puts all parts into one row, choices one-hot, as Gymnasium's `flatten` does.

    Unlike `flatten`, it puts images first, each channels-first, and its errors name the part that
    does not fit the space. A row with images is uint8 if all of its parts fit into bytes.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._parts = in_order(env.observation_space)
        bounds = [part.bounds for part in self._parts]
        images = tuple(
            low.shape for part, (low, _) in zip(self._parts, bounds, strict=True) if part.is_image
        )
        self._dtype = np.result_type(*(low.dtype for low, _ in bounds))
        if images:
            in_bytes = all(part.fits_bytes for part in self._parts)
            self._dtype = np.dtype(np.uint8 if in_bytes else np.float32)
        low, high = (
            np.concatenate([end.reshape(-1) for end in ends]).astype(self._dtype)
            for ends in zip(*bounds, strict=True)
        )
        row = RowBox(low, high, dtype=self._dtype.type)
        row.images = images
        sizes = (low.size for low, _ in bounds)
        row.parts = tuple(zip((part.name for part in self._parts), sizes, strict=True))
        self.observation_space = row
        self.masks = self._parts[-1].is_mask
        """Whether an observation ends with a mask of allowed actions."""
        self._ends = _ends_of_choices(env.action_space) if self.masks else ()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step; while the episode continues, at least one action must be allowed.

        Raises:
            ValueError: No action is allowed.
        """
        stepped = super().step(action)
        observation, _, terminated, truncated, _ = stepped
        if not (terminated or truncated):
            self._require_choice(observation)
        return stepped

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        """Reset; at least one action must be allowed at the start.

        Raises:
            ValueError: No action is allowed.
        """
        observation, info = super().reset(**given)
        self._require_choice(observation)
        return observation, info

    def observation(self, observation: object) -> NDArray[Any]:
        """Return the numbers in a row."""
        rows = [_row(part, observation) for part in self._parts]
        return np.concatenate(rows).astype(self._dtype, copy=False)

    def in_words(self) -> str:
        """Return the parts of the row in words, each with its size."""
        sizes = [(part, part.bounds[0].shape) for part in self._parts]
        images = [f"{part.name} {_size(shape)}" for part, shape in sizes if part.is_image]
        rest = [(part.name, shape[0]) for part, shape in sizes if not part.is_image]
        listed = ", ".join(f"{name} {count}" if name else f"{count}" for name, count in rest)
        said = [f"images through filters of their own: {', '.join(images)}"] if images else []
        if rest:
            count = _numbers(sum(count for _, count in rest))
            said.append(f"{count} in a row: {listed}")
        kind = "bytes" if self._dtype == np.uint8 and images else "float32"
        return f"{'; then '.join(said)} ({kind})"

    def _require_choice(self, observation: NDArray[Any]) -> None:
        if not self.masks:
            return
        choices = np.split(observation[-self._ends[-1] :], self._ends[:-1])
        if not all(allowed.any() for allowed in choices):
            raise ValueError(f"part {self._parts[-1].name}: it allows no action")


def _ends_of_choices(space: Space[Any]) -> tuple[int, ...]:
    """Return the end of each choice's numbers in a mask."""
    if isinstance(space, Discrete):
        return (int(space.n),)
    sizes = space.nvec.reshape(-1) if isinstance(space, MultiDiscrete) else [2] * flatdim(space)
    return tuple(int(end) for end in np.cumsum(sizes))


def has_mask(env: Env) -> bool:
    """Whether an adapted environment's observations end with a mask of allowed actions."""
    row = _row_of_parts(env)
    return row is not None and row.masks


def what_is_seen(env: Env) -> str:
    """Describe a policy's view of an adapted environment in words, part by part."""
    row, shape = _row_of_parts(env), env.observation_space.shape or ()
    if row is not None:
        return row.in_words()
    if is_image(env.observation_space):
        return f"an image {_size(shape)} (channels, height, width) of bytes, through filters"
    return f"{_numbers(shape[0])} in a row"


def _row_of_parts(env: Env) -> PartsObservation | None:
    """Return the layer of an adapted environment that puts parts into a row, if there is one."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, PartsObservation):
            return env
        env = env.env
    return None


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _numbers(count: int) -> str:
    return f"{count:,} number{'s' * (count != 1)}"


def sampled_action(env: Env, observation: NDArray[Any], space: Space[Any] | None = None) -> Any:
    """Return a random action of an adapted environment that the observation allows.

    Args:
        env: The environment.
        observation: Its newest observation.
        space: Space that draws the action; None means the environment's own.
    """
    space = env.action_space if space is None else space
    if not has_mask(env):
        return space.sample()
    ends = _ends_of_choices(space)
    choices = np.split(np.asarray(observation)[-ends[-1] :].astype(np.int8), ends[:-1])
    return space.sample(mask=choices[0] if isinstance(space, Discrete) else tuple(choices))


def _row(part: Part, observation: object) -> NDArray[Any]:
    value, space = part.of(observation), part.space
    try:
        if part.is_mask:
            mask = np.asarray(value)
            if mask.shape != space.shape or not ((mask == 0) | (mask == 1)).all():
                raise ValueError(f"{value!r:.100} is no mask of {space.shape} zeros and ones")
            return mask
        if isinstance(space, Box):
            array = checked_observation(value, space)
            return (channels_first(array) if part.is_image else array).reshape(-1)
        if not space.contains(value):
            raise ValueError(f"{value!r:.100} is not in {space}")
        return np.asarray(flatten(space, value))
    except (ValueError, TypeError, IndexError) as error:
        raise ValueError(f"part {part.name or 'observation'}: {error}") from error


class VectorObservation(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Flattens boxes of any shape, in C order."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._box = cast("Box", env.observation_space)
        self.observation_space = Box(
            self._box.low.reshape(-1), self._box.high.reshape(-1), dtype=self._box.dtype.type
        )

    def observation(self, observation: object) -> NDArray[Any]:
        """Return the numbers in a row."""
        return checked_observation(observation, self._box).reshape(-1)


class ChannelsFirst(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Turns [H, W], [H, W, C] and stacks [S, H, W, C] into images [C, H, W], or [S * C, H, W]."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._box = cast("Box", env.observation_space)
        low, high = channels_first(self._box.low), channels_first(self._box.high)
        self.observation_space = ImageBox.of(low, high)

    def observation(self, observation: object) -> NDArray[np.uint8]:
        """Return the image with its channels first."""
        return channels_first(checked_observation(observation, self._box))


class FlatAction(gymnasium.ActionWrapper[Any, Any, Any]):
    """Takes actions of any shape as a vector of real numbers or of choices."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        inner = env.action_space
        self._shape, self._dtype = inner.shape, inner.dtype
        if isinstance(inner, Box):
            low, high = inner.low.reshape(-1), inner.high.reshape(-1)
            self.action_space = Box(low, high, dtype=inner.dtype.type)
        elif isinstance(inner, MultiDiscrete):
            self.action_space = MultiDiscrete(inner.nvec.reshape(-1), start=inner.start.reshape(-1))
        else:
            self.action_space = MultiDiscrete(np.full(int(np.prod(inner.shape or ())), 2))

    def action(self, action: NDArray[Any]) -> NDArray[Any]:
        """Return the action in the environment's own shape and type."""
        return np.asarray(action, self._dtype).reshape(self._shape or ())


def adapted(env: Env) -> Env:
    """Return the environment in the form that policies expect, in as few wrappers as possible.

    Its spaces have passed the checks of `shared.environments.spaces`.
    """
    if has_parts(env.observation_space):
        env = PartsObservation(env)
    observation, action = cast("Box", env.observation_space), env.action_space
    if is_image(observation):
        shape = observation.shape
        if len(shape) != 3 or shape[-1] < shape[0]:
            env = ChannelsFirst(env)
    elif len(observation.shape) != 1:
        env = VectorObservation(env)
    is_vector = isinstance(action, Box | MultiDiscrete) and len(action.shape) == 1
    if isinstance(action, Box | MultiDiscrete | MultiBinary) and not is_vector:
        env = FlatAction(env)
    return env
