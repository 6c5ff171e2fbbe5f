"""Stacked frames as single frames, without those that the previous observation holds already.

An observation of `k` stacked frames repeats k - 1 frames of the previous observation. So only the
first observation of an episode is sent whole; each later observation is sent as its newest frame.
The frames of one environment are stored in order of time, which helps the compressor: little moves
from frame to frame.

Legend: `T` steps, `B` environments, `k` frames per stack, `F` truncated episodes, `M` frames sent;
`end[t, b]` marks the last step of an episode, after which `observation[t + 1, b]` begins the next
episode unless it is the last row (see `shared.trajectory.trajectory`).

Invariant: `unpacked(packed(arrays))` is bit-identical to `arrays`. Observations that are not stacks
of frames stay unchanged.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from shared.trajectory.columns import Array, Column, checked

Images = NDArray[np.uint8]
Flags = NDArray[np.bool_]
_FRAMES: tuple[str, ...] = ("frame", "final_frame")
_MARKS: tuple[str, ...] = ("terminated", "truncated")


def packed(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return a trajectory's arrays with `frame` and `final_frame` in place of the observations.

    Returns:
        The unchanged arrays if the observations are not stacks of frames.
    """
    arrays = dict(arrays)
    observation, final_observation = arrays["observation"], arrays["final_observation"]
    if observation.dtype != np.uint8 or observation.ndim != 5:
        return arrays
    end, cut = _marks(arrays)
    frame = _single(observation, _begins(end))
    final_frame = _single_finals(final_observation, observation, cut)
    if frame is None or final_frame is None:
        return arrays
    del arrays["observation"], arrays["final_observation"]
    return {**arrays, "frame": frame, "final_frame": final_frame}


def unpacked(
    arrays: Mapping[str, Array], observation_shape: tuple[int, ...], *, max_bytes: int
) -> dict[str, Array]:
    """Return the arrays that `packed` took; untrusted arrays without frames stay unchanged.

    Args:
        arrays: Untrusted arrays.
        observation_shape: (k, H, W) if frames are allowed.
        max_bytes: Most bytes for the observations; checked before memory is allocated.

    Raises:
        ValueError: The number or the size of the frames does not fit the other arrays.
    """
    arrays = dict(arrays)
    if "frame" not in arrays and "final_frame" not in arrays:
        return arrays
    if "observation" in arrays or "final_observation" in arrays:
        raise ValueError("holds both frame and observation, expected one of them")
    if len(observation_shape) != 3:
        raise ValueError(f"frame is not allowed for observations of shape {observation_shape}")
    single = {name: arrays.pop(name) for name in _FRAMES if name in arrays}
    marks = {name: arrays[name] for name in _MARKS if name in arrays}
    checked(marks, dict.fromkeys(_MARKS, Column(np.dtype(np.bool_))))
    end, cut = _marks(arrays)
    num_stacked, *size = observation_shape
    begin = _begins(end)
    num_frames = begin.size + int(np.count_nonzero(begin)) * (num_stacked - 1)
    counts = zip(_FRAMES, (num_frames, int(np.count_nonzero(cut))), strict=True)
    forms = {name: Column(np.dtype(np.uint8), (count, *size)) for name, count in counts}
    checked(single, forms, axes=lambda _name: ())
    frame, final_frame = single["frame"], single["final_frame"]
    num_bytes = (begin.size + len(final_frame)) * math.prod(observation_shape)
    if num_bytes > max_bytes:
        raise ValueError(f"observation takes {num_bytes} bytes, at most {max_bytes} are allowed")
    observation = _stacked(frame, begin, num_stacked)
    observation.flags.writeable = False
    return {
        **arrays,
        "observation": observation,
        "final_observation": _stacked_finals(final_frame, observation, cut),
    }


def _marks(arrays: Mapping[str, Array]) -> tuple[Flags, Flags]:
    """Return the steps that end episodes, and the steps with a final observation, both # [T, B]."""
    terminated, truncated = arrays["terminated"], arrays["truncated"]
    return terminated | truncated, truncated & ~terminated


def _single(observation: Images, begin: Flags) -> Images | None:
    """Return the frames [M, H, W] of stacked observations [T+1, B, k, H, W], each once.

    Return None if an observation does not continue the previous observation.
    """
    for t, b in np.argwhere(~begin):
        # Step by step: each comparison stays in the processor's cache.
        if not np.array_equal(observation[t - 1, b, 1:], observation[t, b, :-1]):
            return None
    sent = np.repeat(begin[:, :, np.newaxis], observation.shape[2], axis=2)  # [T+1, B, k]
    sent[:, :, -1] = True
    return observation.swapaxes(0, 1)[sent.swapaxes(0, 1)]


def _stacked(frames: Images, begin: Flags, num_stacked: int) -> Images:
    """Return the observations [T+1, B, k, H, W] that `_single` reduced."""
    num_sent = np.where(begin, num_stacked, 1).swapaxes(0, 1)
    newest = np.cumsum(num_sent.reshape(-1)).reshape(num_sent.shape).swapaxes(0, 1) - 1
    stacks = sliding_window_view(frames, num_stacked, axis=0)  # [M - k + 1, H, W, k]
    observation: Images = np.moveaxis(stacks, -1, 1)[newest - (num_stacked - 1)]
    return observation


def _single_finals(final_observation: Images, observation: Images, cut: Flags) -> Images | None:
    """Return the newest frame [F, H, W] of each final observation [F, k, H, W].

    Return None if a final observation does not continue the previous observation. `cut` marks the F
    steps with a final observation, in order.
    """
    before = observation[:-1][cut]
    if not np.array_equal(before[:, 1:], final_observation[:, :-1]):
        return None
    return final_observation[:, -1]


def _stacked_finals(frames: Images, observation: Images, cut: Flags) -> Images:
    """Return the final observations [F, k, H, W] that `_single_finals` reduced."""
    before = observation[:-1][cut]
    return np.concatenate((before[:, 1:], frames[:, np.newaxis]), axis=1)


def _begins(end: Flags) -> Flags:
    """Return the mask of observations that begin an episode, # [T+1, B]."""
    begin = np.zeros((len(end) + 1, *end.shape[1:]), np.bool_)
    begin[0] = True
    begin[1:-1] = end[:-1]
    return begin
