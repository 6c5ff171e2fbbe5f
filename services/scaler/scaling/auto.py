"""As many actors as can share a round's samples while their steps outweigh their calls.

With a fixed number of samples (`samples_per_round`) the number of actors changes a round's time. It
changes little of what is learned: advantages look no further ahead than their fragment. n actors
take `N / n` steps each, at `step_s` a step, and every call takes `call_overhead_s` beside them.
More actors shorten the round until a call takes longer than what it is made for. So

    n = N * step_s / (r * call_overhead_s),    r = 5 by default,

rounded down. Both times are medians over recent rounds, and a number up to a fifth below the exact
one stays: measured times vary, and a new number has no use of its own. Shares are equal and whole,
so some of N may be left out; where that is more than a twentieth, fewer actors with a step more
each leave out less.

| case | outcome |
|---|---|
| nothing measured yet | the fewest actors |
| a call takes no time | the most actors that share well |
"""

import math
from collections.abc import Sequence
from statistics import median

from services.scaler.scaling.base import ScalingDecision, ScalingInput, ScalingPolicy
from shared.contracts.scaling_spec import AutoScaling

_ROUNDS = 8
"""Rounds whose times count; the newest may not have landed when the next one is decided."""
_TOLERANCE = 0.2
"""Of the exact number: so far below it the number of the round before stays."""
_LEFT_OUT = 0.05
"""Of a round's samples: a remainder that may be left out."""


class AutoPolicy(ScalingPolicy[AutoScaling]):
    """Actors by how long a step and a call take."""

    def decide(self, seen: ScalingInput) -> ScalingDecision:
        """Return the number of actors that a round's steps are worth."""
        steps = seen.steps_to_share or 0
        step_s = _median([past.step_s for past in seen.past])
        overhead_s = _median([past.call_overhead_s for past in seen.past])
        if step_s is None or overhead_s is None:
            requested = seen.actors.min
            reason = f"auto: nothing measured yet: {requested} actors"
            return ScalingDecision(requested=requested, reason=reason)
        share_s = self.parameters.steps_per_overhead * overhead_s
        exact = min(steps * step_s / share_s if share_s > 0 else math.inf, seen.actors.max)
        before = seen.past[-1].requested
        shares = steps // seen.envs_per_actor
        least = _sharing(shares, (1 - _TOLERANCE) * exact)
        stays = least <= before <= exact and before == _sharing(shares, before)
        requested = seen.actors.clip(before if stays else _sharing(shares, exact))
        reason = (
            f"auto: {steps} steps of {1000 * step_s:.3g} ms, a call takes {1000 * overhead_s:.3g} "
            f"ms beside them: {requested} actors"
        )
        return ScalingDecision(requested=requested, reason=reason)

    @property
    def num_rounds(self) -> int:
        """Enough for a median."""
        return _ROUNDS


def _sharing(shares: int, exact: float) -> int:
    """Return as many actors as a number allows, or fewer that leave out less of the shares."""
    most = max(1, math.floor(exact))
    used = most * (shares // most)
    if used >= (1 - _LEFT_OUT) * shares:
        return most
    fewer = shares // math.ceil(shares / most)
    return fewer if fewer * (shares // fewer) > used else most


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
