"""Shrink a grey image by areas, bit for bit like OpenCV's `INTER_AREA`.

Every published Atari score was reached on frames that OpenCV shrank. OpenCV itself would add 150 MB
to the actor's image, more than everything else that an actor needs for a game. So this module
implements the one function that matters. Each new pixel is the float32 mean of the rectangle of old
pixels that it covers, first along rows and then along columns, summed in pixel order. The order
matters: exact halves are common, and it decides which way they round.
"""

import math

import numpy as np
from numpy.typing import NDArray

_SLIVER = 1e-3
"""Share of a pixel below which an overlap is ignored, as in OpenCV."""


class AreaResize:
    """Shrinks images from one size to another; reuses its buffers, so it serves one caller."""

    def __init__(self, old: tuple[int, int], new: tuple[int, int]) -> None:
        """Prepare to shrink images from `old` to `new`, both (height, width).

        Raises:
            ValueError: The new size is empty or larger than the old, or both ratios are integers,
                for which OpenCV rounds differently.
        """
        if not all(1 <= after <= before for before, after in zip(old, new, strict=True)):
            raise ValueError(f"cannot shrink an image of {old} to {new}")
        if old != new and not any(before % after for before, after in zip(old, new, strict=True)):
            raise ValueError(f"cannot shrink {old} to {new}: the ratios must not both be whole")
        self._columns, self._rows = _taps(old[1], new[1]), _taps(old[0], new[0])
        # Columns are summed on the transposed image: whole rows are faster to read.
        self._turned = np.empty(old[::-1], np.float32)
        self._narrow = np.empty((2, new[1], old[0]), np.float32)
        self._upright = np.empty((old[0], new[1]), np.float32)
        self._small = np.empty((2, *new), np.float32)

    def shrink(self, image: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
        """Write the small image into `out` # [height, width]."""
        np.copyto(self._turned, image.T)
        narrow, small = self._narrow[0], self._small[0]
        _weighted_sum(self._turned, self._columns, out=narrow, scratch=self._narrow[1])
        np.copyto(self._upright, narrow.T)
        _weighted_sum(self._upright, self._rows, out=small, scratch=self._small[1])
        np.rint(small, out=small)
        np.copyto(out, small, casting="unsafe")


def _weighted_sum(
    rows: NDArray[np.float32],
    taps: list[tuple[NDArray[np.intp], NDArray[np.float32]]],
    *,
    out: NDArray[np.float32],
    scratch: NDArray[np.float32],
) -> None:
    """Sum weighted rows in order; mode "clip" skips NumPy's check of indices known to be valid."""
    (first, first_weight), *others = taps
    rows.take(first, axis=0, out=out, mode="clip")
    np.multiply(out, first_weight, out=out)
    for index, weight in others:
        rows.take(index, axis=0, out=scratch, mode="clip")
        np.multiply(scratch, weight, out=scratch)
        np.add(out, scratch, out=out)


def _taps(old: int, new: int) -> list[tuple[NDArray[np.intp], NDArray[np.float32]]]:
    """Return, for the first, second, ... old pixel under each new one, its index and share [n, 1].

    A new pixel that covers fewer old pixels than others is padded with shares of 0.
    """
    shares = [_shares(pixel, old, old / new) for pixel in range(new)]
    count = max(map(len, shares))
    index = np.zeros((count, new), np.intp)
    weight = np.zeros((count, new), np.float32)
    for pixel, covered in enumerate(shares):
        for k, (position, share) in enumerate(covered):
            index[k, pixel], weight[k, pixel] = position, share
    return [(index[k], weight[k, :, np.newaxis]) for k in range(count)]


def _shares(pixel: int, old: int, scale: float) -> list[tuple[int, float]]:
    """Return the old pixels that a new pixel covers, and the share of each."""
    begin, end = pixel * scale, (pixel + 1) * scale
    width = min(scale, old - begin)
    last_whole = min(math.floor(end), old - 1)
    first_whole = min(math.ceil(begin), last_whole)
    shares = [(whole, 1.0 / width) for whole in range(first_whole, last_whole)]
    if first_whole - begin > _SLIVER:
        shares.insert(0, (first_whole - 1, (first_whole - begin) / width))
    if end - last_whole > _SLIVER:
        shares.append((last_whole, min(end - last_whole, 1.0, width) / width))
    return shares
