"""Products of arrays by either library against float64, and to the same bits wherever they lie."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from services.learner import gemm
from services.learner.arrays import Floats

SHAPES = [(128, 96, 112), (1, 1500, 800), (1200, 900, 1), (3, 5, 4)]
"""m, k, n; all but the last are large."""
mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
LIBRARIES = [False, pytest.param(True, marks=pytest.mark.skipif(not mkl, reason="without MKL"))]


def matrices(m: int, k: int, n: int, dtype: type = np.float32) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(m)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n)) / k**0.5
    return a.astype(dtype), b.astype(dtype)


def test_the_shapes_are_of_both_kinds() -> None:
    large = [m * k * n >= gemm.MIN_MULTIPLICATIONS for m, k, n in SHAPES]
    assert large == [True, True, True, False]


@pytest.mark.parametrize("prefers_mkl", LIBRARIES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_of_arrays_agree_with_float64(
    shape: tuple[int, int, int],
    transposed: bool,
    prefers_mkl: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gemm, "_MKL", prefers_mkl)
    a, b = matrices(*shape)
    if transposed:
        a, b = (np.ascontiguousarray(each.T).T for each in (a, b))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    out = np.full(exact.shape, 7.0, np.float32)
    assert gemm.array_matmul(a, b, out=out) is out
    for found in (gemm.matmul(a, b), out):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, exact, rtol=0.0, atol=1e-5)
    np.testing.assert_array_equal(gemm.matmul(a, b), out)


@pytest.mark.parametrize("prefers_mkl", LIBRARIES)
@pytest.mark.parametrize(
    ("shape", "dtype", "eligible"),
    [(SHAPES[0], np.float32, True), (SHAPES[0], np.float64, False), (SHAPES[3], np.float32, False)],
    ids=["large", "double", "small"],
)
def test_only_large_products_in_single_precision_go_to_mkl(
    shape: tuple[int, int, int],
    dtype: type,
    eligible: bool,
    prefers_mkl: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    went: list[bool] = []
    multiply = torch.mm

    def counted(*args: Any, **kwargs: Any) -> torch.Tensor:
        went.append(True)
        return multiply(*args, **kwargs)

    monkeypatch.setattr(gemm, "_MKL", prefers_mkl)
    monkeypatch.setattr(torch, "mm", counted)
    gemm.array_matmul(*matrices(*shape, dtype=dtype))
    assert went == [True] * (prefers_mkl and eligible)


@pytest.mark.parametrize("prefers_mkl", LIBRARIES)
def test_double_precision_stays_double(prefers_mkl: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm, "_MKL", prefers_mkl)
    a, b = matrices(*SHAPES[0], dtype=np.float64)
    np.testing.assert_allclose(gemm.array_matmul(a, b), a @ b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("prefers_mkl", LIBRARIES)
def test_where_arrays_lie_in_memory_changes_no_bit(
    prefers_mkl: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes allocate differently, and their results must not differ for it."""
    monkeypatch.setattr(gemm, "_MKL", prefers_mkl)
    a, b = matrices(*SHAPES[0])
    expected = gemm.array_matmul(a, b)
    for offset in (1, 4, 7, 12):
        moved = []
        for array in (a, b, expected):
            memory = np.empty(array.size + offset, np.float32)[offset:].reshape(array.shape)
            memory[...] = array
            moved.append(memory)
        x, y, out = moved
        out.fill(0.0)
        np.testing.assert_array_equal(gemm.array_matmul(x, y, out=out), expected)


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [
        ("processor : 0\nvendor_id\t: GenuineIntel\n", mkl),
        ("processor : 0\nvendor_id\t: AuthenticAMD\n", False),
        ("processor : 0\nCPU implementer\t: 0x41\n", False),
        (None, False),
    ],
)
def test_arrays_go_to_mkl_on_the_processors_it_is_made_for(
    cpu: str | None, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "cpuinfo"
    if cpu is not None:
        info.write_text(cpu, encoding="utf-8")
    assert gemm.prefers_mkl(info) is expected
