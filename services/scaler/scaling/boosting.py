"""The boosting score: the value of a round's training data, from curvature.

Yu et al., "Nitro", PVLDB 18(1), 2024. Section 5.2, equation 2: the *convexity ratio* of the
surrogate objective is `R = -lambda_max / lambda_min`, from the extreme eigenvalues of its Hessian.
A small ratio means that concave directions dominate: ascent is safe, and more trajectories pay off.
Section 5.3 compares the ratio with the last `n` ratios. The score is
`S_k = (R_max - R_k) / (R_max - R_min) * d^k`, and the number of actors is
`I_k = clip(round(I_max * S_k), I_min, I_max)`.

Rounds are numbered from 0 here, so the first factor `d^k` is 1. The paper does not define the score
of an undefined ratio; each such case has an outcome below and a sentence in `note`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shared.contracts.rounds import Curvature


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvexityRatio:
    """One round's ratio."""

    value: float | None
    """R in [0, inf); None if undefined."""
    note: str
    """Why it is undefined or clamped; empty otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoostingScore:
    """A round's score, with the ratio behind it."""

    score: float
    """S_k in [0, 1]."""
    ratio: float | None
    """The ratio behind the score: this round's, or else the last defined one."""
    note: str
    """Explanation of the score, for people."""


def convexity_ratio(curvature: Curvature | None) -> ConvexityRatio:
    """Return `R = -lambda_max / lambda_min` (equation 2) if it is defined.

    | case | outcome |
    |---|---|
    | no curvature, or an eigenvalue that is not finite | undefined |
    | `lambda_min >= 0`: nothing is concave | undefined |
    | `lambda_max <= 0`: everything is concave | 0, the ratio most worth boosting |
    | quotient overflows | undefined |
    """
    if curvature is None:
        return ConvexityRatio(value=None, note="no curvature was measured")
    lambda_max, lambda_min = curvature.lambda_max, curvature.lambda_min
    if not (math.isfinite(lambda_max) and math.isfinite(lambda_min)):
        return ConvexityRatio(value=None, note="curvature is not finite")
    if lambda_min >= 0:
        return ConvexityRatio(
            value=None, note=f"ratio undefined: lambda_min {lambda_min:.3g} is not negative"
        )
    if lambda_max <= 0:
        return ConvexityRatio(
            value=0.0, note=f"lambda_max {lambda_max:.3g} is not positive: ratio 0"
        )
    ratio = -lambda_max / lambda_min
    if not math.isfinite(ratio):
        return ConvexityRatio(value=None, note=f"ratio undefined: lambda_min {lambda_min:.3g}")
    return ConvexityRatio(value=ratio, note="")


def boosting_score(
    earlier: Sequence[float],
    current: ConvexityRatio,
    *,
    round_index: int,
    window: int,
    decay: float,
) -> BoostingScore:
    """Return the score of a round (section 5.3).

    Args:
        earlier: Defined ratios of earlier rounds, oldest first.
        current: This round's ratio; if undefined, the last of `earlier` replaces it.
        round_index: k, from 0.
        window: Number of newest defined ratios to compare, including the current one.
        decay: d, in (0, 1].

    Returns:
        A score in [0, 1]. Before decay it is 1 if fewer than two ratios are known, or if all ratios
        of the window are equal.
    """
    defined = [*earlier] if current.value is None else [*earlier, current.value]
    factor = decay**round_index
    if not defined:
        return BoostingScore(
            score=factor, ratio=None, note=f"{current.note}; no ratio yet: score 1"
        )
    seen = defined[-window:]
    ratio = seen[-1]
    normalised, how = _normalised(ratio, seen)
    notes = [current.note] if current.note else []
    if current.value is None:
        notes.append(f"last ratio {ratio:.3g} used again")
    notes.append(how)
    return BoostingScore(score=normalised * factor, ratio=ratio, note="; ".join(notes))


def num_actors(score: float, *, minimum: int, maximum: int) -> int:
    """Return `clip(round(maximum * score), minimum, maximum)`, halves rounded up (section 5.3)."""
    return max(minimum, min(maximum, math.floor(maximum * score + 0.5)))


def normalised_position(ratio: float, seen: Sequence[float]) -> float | None:
    """Return `(max - ratio) / (max - min)` in [0, 1]; None if all of `seen` are equal."""
    low, high = min(seen), max(seen)
    # Halved first: the difference of two huge ratios must not overflow.
    spread = high / 2 - low / 2
    if spread == 0:
        return None
    return min(1.0, max(0.0, (high / 2 - ratio / 2) / spread))


def _normalised(ratio: float, seen: Sequence[float]) -> tuple[float, str]:
    if len(seen) == 1:
        return 1.0, f"first ratio {ratio:.3g}: score 1"
    value = normalised_position(ratio, seen)
    if value is None:
        return 1.0, f"all {len(seen)} ratios are {ratio:.3g}: score 1"
    where = f"ratio {ratio:.3g} in [{min(seen):.3g}, {max(seen):.3g}] of {len(seen)} rounds"
    return value, where
