"""Sampled actions on their way into a box, against the formulas spelled out."""

import numpy as np
import pytest
from gymnasium.spaces import Box
from numpy.typing import DTypeLike, NDArray

from shared.hyperparameters.common import ActionMapping
from shared.policy.action_mapping import action_map
from shared.policy.spec import ACTION_MAPPINGS


def _f32(values: object) -> NDArray[np.float32]:
    return np.array(values, np.float32)


LOW, HIGH = _f32([-2, 0, -0.4]), _f32([2, 10, 0.4])
ACTIONS = np.random.default_rng(0).normal(0, 2, (50, 3)).astype(np.float32)


def test_actions_are_unsquashed_then_clipped() -> None:
    expected = np.clip(LOW + (ACTIONS + 1) * (HIGH - LOW) / 2, LOW, HIGH)
    scaled = action_map("rescale", LOW, HIGH)(ACTIONS)
    np.testing.assert_allclose(scaled, expected, rtol=1e-5, atol=1e-6)
    assert scaled.dtype == np.float32
    assert np.all((scaled >= LOW) & (scaled <= HIGH))


def test_clipping_leaves_what_lies_inside_as_it_is() -> None:
    clipped = action_map("clip", LOW, HIGH)(ACTIONS)
    np.testing.assert_array_equal(clipped, np.clip(ACTIONS, LOW, HIGH))
    assert clipped.dtype == np.float32
    assert not np.shares_memory(clipped, ACTIONS)


def test_the_unit_box_only_clips() -> None:
    action = _f32([[-3, 0.3, 1.5]])
    scaled = action_map("rescale", -np.ones((1, 3)), np.ones((1, 3)))(action)
    np.testing.assert_array_equal(scaled, _f32([[-1, 0.3, 1]]))
    assert not np.shares_memory(scaled, action)


def test_the_widest_box_does_not_overflow() -> None:
    limit = np.finfo(np.float32).max
    scaled = action_map("rescale", np.full(3, -limit), np.full(3, limit))(_f32([-1, 0, 1]))
    np.testing.assert_array_equal(scaled, _f32([-limit, 0, limit]))


@pytest.mark.parametrize("mapping", ACTION_MAPPINGS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_what_comes_out_is_in_the_box_whatever_its_type(
    mapping: ActionMapping, dtype: DTypeLike
) -> None:
    # 0.1 is larger as a float32 than as a float64.
    box = Box(-0.1, 0.1, (3,), dtype)  # type: ignore[arg-type] # one of NumPy's types
    for action in action_map(mapping, box.low, box.high)(ACTIONS):
        assert box.contains(action), action
