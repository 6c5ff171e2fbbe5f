"""Normalised observations against the formula in torch and in float64."""

import numpy as np
import pytest
import torch

from shared.policy.observation_scale import ObservationScale

RNG = np.random.default_rng(0)
MEAN = (RNG.normal(size=6) * 10).astype(np.float32)
SCALE = RNG.uniform(0.1, 1e3, 6).astype(np.float32)
OBSERVATION = (MEAN + RNG.normal(size=(40, 6)) * 3 / SCALE).astype(np.float32)


@pytest.mark.parametrize("num_rows", [1, 40])
def test_it_is_the_formula_to_the_bit_of_torchs_float32(num_rows: int) -> None:
    rows = OBSERVATION[:num_rows]
    before, out = rows.copy(), np.empty_like(rows)
    found = ObservationScale(MEAN, SCALE, bound=2.0).apply(rows, out=out)
    assert found is out
    np.testing.assert_array_equal(rows, before)
    mean, scale = torch.from_numpy(MEAN), torch.from_numpy(SCALE)
    in_torch = ((torch.from_numpy(rows) - mean) * scale).clamp(-2.0, 2.0)
    np.testing.assert_array_equal(found, in_torch.numpy())
    exact = np.clip((rows.astype(np.float64) - MEAN) * SCALE, -2.0, 2.0)
    np.testing.assert_allclose(found, exact, rtol=1e-6)
    assert num_rows == 1 or {-2.0, 2.0} <= set(found.ravel().tolist())


@pytest.mark.parametrize(
    ("mean", "scale", "bound", "message"),
    [
        (MEAN, SCALE[:5], 1.0, r"shape \(6,\) and observation_scale \(5,\)"),
        (MEAN[None], SCALE[None], 1.0, "expected"),
        (MEAN, SCALE * 0, 1.0, "observation_scale must be above 0"),
        (MEAN, SCALE * np.float32(np.nan), 1.0, "observation_scale must be above 0"),
        (MEAN, SCALE, 0.0, "observation_clip is 0.0"),
        (MEAN, SCALE, float("nan"), "observation_clip is nan"),
        (MEAN, SCALE, float("inf"), "observation_clip is inf"),
    ],
)
def test_statistics_that_scale_nothing_are_refused(
    mean: np.ndarray, scale: np.ndarray, bound: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ObservationScale(mean, scale, bound=bound)
