"""Largest and smallest eigenvalue of a symmetric matrix known only by its products with vectors.

The Lanczos iteration (Golub & Van Loan, "Matrix Computations", 4th ed., section 10.1) with full
reorthogonalisation: in m products it finds an orthonormal basis Q of a Krylov space and the
tridiagonal T = Q^T A Q, whose extreme eigenvalues approach those of A from inside. Plain Lanczos
loses orthogonality and repeats converged eigenvalues; to prevent this, every new vector is
orthogonalised twice: first against the two vectors that it overlaps with, then against all ("twice
is enough", Parlett 1998, section 6.9).

A start may lean towards a direction in which the matrix is expected to be large; with a good guess
it needs fewer products than a random one (decision 019).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

MatVec = Callable[[Tensor], Tensor]

_FIRST_CHECK = 3
"""Fewest products before the convergence check; fewer do not describe both ends."""
_LEAN = 0.1
"""Length of what is added along the lean to a random start of length 1, which has about
1 / sqrt(size) along any direction. More would save few products, and delay an end without a
component along the lean."""
_BREAKDOWN = 1e-6
"""The Krylov space counts as exhausted when a new vector is this much shorter than A's scale.

Far above the rounding of float32 products, far below any tolerance worth asking for.
"""
_SMALL_END = 0.1
"""What an end's residual is relative to, at least, as a part of the spectral radius: an end at 0
would never be found otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanczosResult:
    """Extreme eigenvalues, as accurate as the number of products allowed."""

    lambda_max: float
    lambda_min: float
    residual: float
    """Mean of the two |A y - theta y| of the unit Ritz vectors, each relative to its own |theta|.

    Or to a tenth of the larger |theta|, where that is more. Either of them, times what it is
    relative to, bounds the distance to the nearest true eigenvalue; the distance is far smaller
    where that one has no near neighbours (Parlett, "The symmetric eigenvalue problem", 11.7).
    """
    matvecs: int


def extreme_eigenvalues(
    matvec: MatVec,
    size: int,
    *,
    max_matvecs: int,
    tolerance: float,
    seed: int = 0,
    lean: Tensor | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> LanczosResult:
    """Return both ends of the spectrum of a symmetric matrix A.

    Stops when the residual (see `LanczosResult`) is not above `tolerance`, when the Krylov space is
    exhausted (the values are then exact, up to parts of A the start has no component in), or after
    `max_matvecs` products, in which case `residual` is its accuracy.

    Args:
        matvec: v -> A v, both # [size] `dtype`. May reuse one output buffer.
        size: Rows of A.
        max_matvecs: Most products.
        tolerance: Relative residual that is good enough.
        seed: Of the random start, drawn on the CPU from a generator of its own.
        lean: A direction that the start leans towards, of any length. # [size]
        device: Where vectors live.
        dtype: Of the vectors; coefficients are float64.

    Raises:
        ValueError: `size`, `max_matvecs` or `tolerance` is not positive.
        FloatingPointError: A product, or the lean, is not finite.
    """
    if size < 1 or max_matvecs < 1 or not tolerance > 0:
        raise ValueError(
            f"size ({size}), max_matvecs ({max_matvecs}) and tolerance ({tolerance}) "
            "must be positive"
        )
    steps = min(max_matvecs, size)
    basis = torch.empty((steps, size), dtype=dtype, device=device)
    basis[0] = _probe(size, seed)
    if lean is not None:
        _lean(basis[0], lean)
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    while True:
        k = len(diagonal)
        remainder = matvec(basis[k]).to(dtype)
        alpha, beta, remainder = _orthogonalised(remainder, basis[: k + 1])
        if not np.isfinite(alpha + beta):
            raise FloatingPointError(f"matrix-vector product {k + 1} is not finite")
        diagonal.append(alpha)
        result, scale = _ritz(diagonal, off_diagonal, beta)
        exhausted = beta <= _BREAKDOWN * scale or k + 1 == size
        if exhausted or k + 1 == steps:
            return result
        if k + 1 >= _FIRST_CHECK and result.residual <= tolerance:
            return result
        off_diagonal.append(beta)
        torch.mul(remainder, 1.0 / beta, out=basis[k + 1])


@lru_cache(maxsize=8)
def _probe(size: int, seed: int) -> Tensor:
    """Return the starting vector # [size] float64 of length 1: the same in every round of a job."""
    probe = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    probe /= probe.norm()
    return probe


def _lean(start: Tensor, towards: Tensor) -> None:
    """Add `_LEAN` of a vector of any length to `start`, of length 1, in place."""
    length = towards.norm()
    # No branch on the number, which would wait for a GPU: 0 over 1 is 0.
    start += _LEAN * towards / torch.where(length > 0, length, 1.0)
    start /= start.norm()


def _orthogonalised(vector: Tensor, basis: Tensor) -> tuple[float, float, Tensor]:
    """Return `vector`'s component along the last row of `basis`, and what is orthogonal to all.

    The length of the latter is the middle value.
    """
    along = []
    # In exact arithmetic only the last two have a component.
    for rows in (basis[-2:], basis):
        components = rows @ vector
        vector = torch.addmv(vector, rows.t(), components, alpha=-1.0)
        along.append(components[-1])
    # Together: each separate read would wait for the GPU.
    first, second, length = torch.stack((*along, vector.norm())).tolist()
    return first + second, length, vector


def _ritz(
    diagonal: list[float], off_diagonal: list[float], beta: float
) -> tuple[LanczosResult, float]:
    """Return the extreme Ritz values of T with their residuals, and the scale of A seen so far."""
    tridiagonal = np.diag(diagonal)
    np.fill_diagonal(tridiagonal[1:], off_diagonal)  # of which `eigh` reads the lower half
    values, vectors = np.linalg.eigh(tridiagonal)
    # |A y - theta y| = beta * |last component of T's eigenvector| (Golub & Van Loan, 10.1.4)
    residuals = beta * np.abs(vectors[-1, [0, -1]])
    sizes = np.abs(values[[0, -1]])
    radius = float(sizes.max())
    result = LanczosResult(
        lambda_max=float(values[-1]),
        lambda_min=float(values[0]),
        # Each relative to its own size: the result is their quotient, whose error is the sum.
        residual=float((residuals / sizes.clip(_SMALL_END * radius)).mean()) if radius > 0 else 0.0,
        matvecs=len(diagonal),
    )
    return result, max(radius, *off_diagonal, 0.0)
