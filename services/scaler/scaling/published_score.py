"""The score as the published code computes it, for comparison with the paper's.

The code (`Nitro.py` in the paper's repository) differs from the paper in five points, all kept:

- its curvature is of a loss to minimise, so its ratio is the inverse of the objective's;
- the score is `(R - R_min) / (R_max - R_min)`, also inverted: the order is the paper's;
- the decay applies to the ratio, not to the score; the window has a decayed and a plain ratio of
  each round, and only the decayed one of the newest: `n` slots cover n / 2 rounds, in mixed units;
- the fewest actors of round k are `clip(I_max * (d^k)^k, I_min, I_max)`;
- numbers are truncated, not rounded.

A flat window divides by zero there, and scores 1 here.
"""

import math
from collections.abc import Sequence

from services.scaler.scaling.boosting import BoostingScore, ConvexityRatio, normalised_position
from shared.contracts.scaling_spec import ActorRange


def published_score(
    earlier: Sequence[float],
    current: ConvexityRatio,
    *,
    round_index: int,
    window: int,
    decay: float,
) -> BoostingScore:
    """Return a round's score in the published code's convention.

    Args:
        earlier: Defined ratios of the objective in earlier rounds, oldest first; assumed to be of
            consecutive rounds. Ratios of 0 have no inverse and are left out.
        current: This round's ratio of the objective.
        round_index: k, from 0.
        window: Number of slots to compare.
        decay: d, in (0, 1].

    Returns:
        A score in [0, 1]; 1 without a defined ratio, for the first ratio, and for a flat window.
    """
    defined = [*earlier] if current.value is None else [*earlier, current.value]
    losses = [inverse for ratio in defined if (inverse := _inverted(ratio)) is not None]
    if not losses:
        return BoostingScore(score=1.0, ratio=current.value, note="no ratio yet: score 1")
    newest = losses[-1] * decay**round_index
    slots = [newest]
    for age, loss in enumerate(reversed(losses[:-1]), start=1):
        slots += [loss, loss * decay ** max(0, round_index - age)]
    seen = slots[:window]
    if len(seen) == 1:
        return BoostingScore(
            score=1.0, ratio=defined[-1], note=f"first ratio of the loss {losses[-1]:.3g}: score 1"
        )
    position = normalised_position(newest, seen)
    where = f"decayed ratio of the loss {newest:.3g} in [{min(seen):.3g}, {max(seen):.3g}]"
    score = 1.0 if position is None else 1.0 - position
    return BoostingScore(score=score, ratio=defined[-1], note=where)


def published_num_actors(
    score: float, *, round_index: int, decay: float, actors: ActorRange
) -> int:
    """Return the score's truncated number of actors, above a floor that falls with `d^(k^2)`."""
    floor = actors.clip(math.floor(actors.max * decay ** (round_index**2)))
    return max(floor, actors.clip(math.floor(actors.max * score)))


def _inverted(ratio: float) -> float | None:
    return 1.0 / ratio if ratio > 0 and math.isfinite(1.0 / ratio) else None
