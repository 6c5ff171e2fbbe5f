"""Lanczos on random matrices of known spectrum, and against SciPy's ARPACK."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import eigsh
from torch import Tensor

from learning.detectors.lanczos import LanczosResult, extreme_eigenvalues
from shared.contracts.detector_rule import DetectorRule

SIZE = 120
SPECTRA = {
    "indefinite": np.linspace(-3.0, 5.0, SIZE),
    "positive definite": np.linspace(0.5, 4.0, SIZE),
    "negative definite": np.linspace(-4.0, -0.5, SIZE),
    "ill-conditioned": np.concatenate((np.logspace(-12, 2, SIZE - 1), [-3.0])),
    "flat with two outliers": np.concatenate((np.full(SIZE - 2, 0.1), [-2.0, 7.0])),
    "one negative, small": np.concatenate((np.linspace(0, 1, SIZE - 1), [-0.3])),
    "huge scale": 1e12 * np.linspace(-3.0, 5.0, SIZE),
    "tiny scale": 1e-12 * np.linspace(-3.0, 5.0, SIZE),
}


def symmetric(eigenvalues: NDArray[np.float64], seed: int = 0) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    q, _ = np.linalg.qr(rng.normal(size=(len(eigenvalues), len(eigenvalues))))
    matrix: NDArray[np.float64] = (q * eigenvalues) @ q.T
    return (matrix + matrix.T) / 2


def lanczos(
    matrix: NDArray[np.float64],
    *,
    tolerance: float = 1e-3,
    max_matvecs: int = 200,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    lean: NDArray[np.float64] | None = None,
) -> LanczosResult:
    tensor = torch.from_numpy(matrix).to(dtype)
    return extreme_eigenvalues(
        lambda vector: tensor @ vector,
        len(matrix),
        max_matvecs=max_matvecs,
        tolerance=tolerance,
        dtype=dtype,
        seed=seed,
        lean=None if lean is None else torch.from_numpy(lean).to(dtype),
    )


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_finds_both_ends_of_a_known_spectrum(name: str, dtype: torch.dtype) -> None:
    spectrum = SPECTRA[name]
    result = lanczos(symmetric(spectrum), dtype=dtype)
    radius = np.abs(spectrum).max()
    assert result.lambda_max == pytest.approx(spectrum.max(), abs=2e-3 * radius)
    assert result.lambda_min == pytest.approx(spectrum.min(), abs=2e-3 * radius)
    assert result.residual <= 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_eigvalsh_and_arpack_on_a_random_matrix(seed: int) -> None:
    raw = np.random.default_rng(seed).normal(size=(SIZE, SIZE))
    matrix = (raw + raw.T) / 2
    result = lanczos(matrix, tolerance=1e-6, seed=seed)
    found = [result.lambda_min, result.lambda_max]
    np.testing.assert_allclose(found, np.linalg.eigvalsh(matrix)[[0, -1]], rtol=1e-6)
    arpack = np.sort(eigsh(matrix, k=2, which="BE", return_eigenvectors=False))
    np.testing.assert_allclose(found, arpack, rtol=1e-6)


def test_the_residual_bounds_the_error_when_products_run_out() -> None:
    spectrum = SPECTRA["indefinite"]
    result = lanczos(symmetric(spectrum), tolerance=1e-12, max_matvecs=8)
    assert result.matvecs == 8
    assert result.residual > 1e-12
    ends = (result.lambda_max, result.lambda_min)
    for value in ends:
        size = max(abs(value), 0.1 * max(map(abs, ends)))
        assert np.abs(spectrum - value).min() <= 2 * result.residual * size


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_smaller_end_is_found_as_exactly_as_the_larger(sign: float) -> None:
    diagonal = sign * torch.linspace(-1.0, 1.0, 2_000, dtype=torch.float64)
    diagonal[0], diagonal[-1] = sign * -1.1, sign * 8.0
    found = extreme_eigenvalues(
        lambda vector: diagonal * vector,
        len(diagonal),
        max_matvecs=100,
        tolerance=1e-2,
        dtype=torch.float64,
    )
    ends = (diagonal.min().item(), diagonal.max().item())
    assert (found.lambda_min, found.lambda_max) == pytest.approx(ends, rel=0.01)


def test_an_inner_eigenvalue_hardly_ever_passes_for_an_end() -> None:
    """If the start has next to no part along an end, a neighbour of that end is found first."""
    tolerance = DetectorRule().tolerance
    off = []
    for seed in range(290):
        random = np.random.default_rng(seed)
        ends = random.uniform(0.2, 1.0, 6) * np.array([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])
        diagonal = torch.from_numpy(np.concatenate((random.normal(0.0, 0.05, 1994), ends)))
        found = extreme_eigenvalues(
            lambda vector, diagonal=diagonal: diagonal * vector,  # type: ignore[misc]
            len(diagonal),
            max_matvecs=DetectorRule().max_matvecs,
            tolerance=tolerance,
            dtype=torch.float64,
            seed=seed,
        )
        ratio = found.lambda_max / found.lambda_min
        off.append(abs(ratio / (diagonal.max() / diagonal.min()).item() - 1.0))
    assert sum(error > 0.01 for error in off) <= 3, "ten with a residual of 1 %"
    assert max(off) < 0.02


def test_an_end_at_zero_is_not_looked_for_without_end() -> None:
    diagonal = torch.linspace(0.0, 1.0, 2_000, dtype=torch.float64)
    found = extreme_eigenvalues(
        lambda vector: diagonal * vector,
        len(diagonal),
        max_matvecs=200,
        tolerance=1e-2,
        dtype=torch.float64,
    )
    assert found.residual <= 1e-2
    assert found.matvecs < 100
    assert found.lambda_min == pytest.approx(0.0, abs=1e-3)


def test_a_looser_tolerance_needs_fewer_products() -> None:
    matrix = symmetric(SPECTRA["indefinite"])
    assert lanczos(matrix, tolerance=1e-1).matvecs < lanczos(matrix, tolerance=1e-6).matvecs


def test_a_start_that_leans_towards_both_ends_needs_fewer_products() -> None:
    diagonal = torch.linspace(-3.0, 5.0, 20_000, dtype=torch.float64)
    ends = torch.zeros_like(diagonal)
    ends[0] = ends[-1] = 1.0

    def found(lean: Tensor | None) -> LanczosResult:
        return extreme_eigenvalues(
            lambda vector: diagonal * vector,
            len(diagonal),
            max_matvecs=200,
            tolerance=1e-2,
            lean=lean,
            dtype=torch.float64,
        )

    leaning = found(ends)
    assert leaning.matvecs < found(None).matvecs
    assert (leaning.lambda_min, leaning.lambda_max) == pytest.approx((-3.0, 5.0), rel=1e-2)
    # Only the direction counts.
    again = found(1e9 * ends)
    assert again.matvecs == leaning.matvecs
    assert again.lambda_max == pytest.approx(leaning.lambda_max, rel=1e-9)


def test_a_lean_that_an_end_has_no_part_in_hides_nothing() -> None:
    spectrum = SPECTRA["flat with two outliers"]
    matrix = symmetric(spectrum)
    values, vectors = np.linalg.eigh(matrix)
    found = lanczos(matrix, lean=vectors[:, -1])
    assert (found.lambda_min, found.lambda_max) == pytest.approx((values[0], values[-1]), rel=1e-6)


def test_a_lean_of_length_zero_is_none() -> None:
    matrix = symmetric(SPECTRA["indefinite"])
    found, without = lanczos(matrix, lean=np.zeros(SIZE)), lanczos(matrix)
    assert found.lambda_max == pytest.approx(without.lambda_max, rel=1e-9)
    assert found.matvecs == without.matvecs


def test_a_lean_that_is_not_finite_is_an_error() -> None:
    with pytest.raises(FloatingPointError, match="product 1 is not finite"):
        lanczos(symmetric(SPECTRA["indefinite"]), lean=np.full(SIZE, np.inf))


def test_the_zero_matrix_is_found_zero_at_once() -> None:
    result = lanczos(np.zeros((9, 9)))
    assert result == LanczosResult(lambda_max=0.0, lambda_min=0.0, residual=0.0, matvecs=1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_multiple_of_the_identity_exhausts_the_krylov_space_at_once(dtype: torch.dtype) -> None:
    result = lanczos(-2.5 * np.eye(30), dtype=dtype)
    assert result.matvecs == 1
    assert result.lambda_max == result.lambda_min == pytest.approx(-2.5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_low_rank_ends_early_with_exact_values(dtype: torch.dtype) -> None:
    spectrum = np.zeros(SIZE)
    spectrum[:3] = (-4.0, 2.0, 9.0)
    result = lanczos(symmetric(spectrum), tolerance=1e-9, dtype=dtype)
    assert result.matvecs <= 6
    assert (result.lambda_min, result.lambda_max) == pytest.approx((-4.0, 9.0), rel=1e-5)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_matrices_smaller_than_the_first_check_are_solved_exactly(size: int) -> None:
    matrix = np.diag(np.arange(1.0, size + 1))
    result = lanczos(matrix)
    assert (result.lambda_min, result.lambda_max) == pytest.approx((1.0, float(size)))


def test_equal_seeds_give_equal_bits_and_leave_the_global_generator_alone() -> None:
    matrix = symmetric(SPECTRA["indefinite"])
    before = torch.get_rng_state()
    assert lanczos(matrix, max_matvecs=5) == lanczos(matrix, max_matvecs=5)
    assert lanczos(matrix, max_matvecs=5) != lanczos(matrix, max_matvecs=5, seed=1)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_product_that_is_not_finite_is_an_error(bad: float) -> None:
    matrix = symmetric(SPECTRA["indefinite"])
    matrix[3, 4] = bad
    with pytest.raises(FloatingPointError, match="product 1 is not finite"):
        lanczos(matrix)


@pytest.mark.parametrize(
    ("size", "max_matvecs", "tolerance"), [(0, 5, 0.1), (5, 0, 0.1), (5, 5, 0.0)]
)
def test_refuses_arguments_that_are_not_positive(
    size: int, max_matvecs: int, tolerance: float
) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        extreme_eigenvalues(
            lambda vector: vector, size, max_matvecs=max_matvecs, tolerance=tolerance
        )
