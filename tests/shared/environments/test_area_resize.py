"""Frames are shrunk exactly as OpenCV shrinks them."""

import cv2
import numpy as np
import pytest

from shared.environments.area_resize import AreaResize

Size = tuple[int, int]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((210, 160), (84, 84)),
        ((250, 160), (84, 84)),  # the console's other screen
        ((84, 84), (84, 84)),
        ((96, 96), (84, 84)),
        ((101, 77), (33, 76)),
        ((5, 9), (1, 2)),
    ],
)
def test_equals_opencv_to_the_last_bit(old: Size, new: Size) -> None:
    rng, resize, out = np.random.default_rng(0), AreaResize(old, new), np.empty(new, np.uint8)
    # Few shades make many exact halves, which are where two implementations would differ.
    for shades in (256, 4, 2):
        for _ in range(10):
            image = (rng.integers(shades, size=old) * (255 // (shades - 1))).astype(np.uint8)
            resize.shrink(image, out)
            expected = cv2.resize(image, new[::-1], interpolation=cv2.INTER_AREA)
            np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("old", "new"), [((84, 84), (85, 84)), ((84, 84), (0, 84)), ((210, 160), (105, 80))]
)
def test_what_it_cannot_do_is_refused(old: Size, new: Size) -> None:
    with pytest.raises(ValueError, match="cannot shrink"):
        AreaResize(old, new)
