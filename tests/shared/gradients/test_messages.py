"""Weights, slices and gradients as bytes: what was encoded comes back, and nothing else does."""

import numpy as np
import pytest

from shared.gradients.messages import (
    GradientMessage,
    GradientMessageError,
    Weights,
    decode_slice,
    encode_slice,
)
from shared.trajectory import codec
from shared.trajectory.columns import Columns

WEIGHTS = Weights(version=3, flat=np.arange(4, dtype=np.float32), network="{}", loss="{}")
GRADIENT = GradientMessage(
    job_id="job",
    round=1,
    call=2,
    base=3,
    num_samples=4,
    flat=np.arange(5, dtype=np.float32),
    stats=np.arange(2, dtype=np.float64),
    started_at=1.5,
    fetch_s=0.25,
    compute_s=0.125,
)


def test_what_was_encoded_comes_back() -> None:
    weights = Weights.decode(WEIGHTS.encode())
    assert (weights.version, weights.network, weights.loss) == (3, "{}", "{}")
    assert weights.flat.tolist() == WEIGHTS.flat.tolist()
    gradient = GradientMessage.decode(GRADIENT.encode())
    assert gradient.flat.tobytes() == GRADIENT.flat.tobytes()
    assert gradient.stats.tobytes() == GRADIENT.stats.tobytes()
    same = ("job_id", "round", "call", "base", "num_samples", "started_at", "fetch_s", "compute_s")
    assert all(getattr(gradient, name) == getattr(GRADIENT, name) for name in same)
    rows = np.ones((3, 2), np.float32)
    assert decode_slice(encode_slice(Columns(a=rows)), names="a").arrays["a"].shape == (3, 2)


def test_one_kind_is_not_taken_for_another() -> None:
    with pytest.raises(GradientMessageError, match="no weights of format 2"):
        Weights.decode(GRADIENT.encode())
    with pytest.raises(GradientMessageError, match="no gradient"):
        GradientMessage.decode(WEIGHTS.encode())
    with pytest.raises(GradientMessageError, match="no slice"):
        decode_slice(WEIGHTS.encode(), names=())


def message(**changes: str) -> bytes:
    payload = codec.decode(GRADIENT.encode())
    return codec.encode(payload.arrays, {**payload.metadata, **changes})


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\x80\x04K\x01.",
        GRADIENT.encode()[:-3],
        message(format="1"),
        message(call="-1"),
        message(call="1" * 40),
        message(fetch_s="nan"),
        message(compute_s="-1.0"),
        message(extra="field"),
    ],
)
def test_what_is_damaged_is_refused(damaged: bytes) -> None:
    with pytest.raises(GradientMessageError):
        GradientMessage.decode(damaged)


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"a": np.ones(3, np.float64)},
        {"a": np.ones((2, 2, 2), np.float32)},
        {"a": np.ones(3, np.float32), "b": np.ones(2, np.float32)},
    ],
)
def test_a_slice_has_equally_long_arrays_of_the_names_that_are_expected(
    arrays: dict[str, np.ndarray],
) -> None:
    names = frozenset(arrays) or frozenset("a")
    with pytest.raises(GradientMessageError):
        decode_slice(encode_slice(Columns(**arrays)), names=names)
