"""As many actors as can share a round's samples while their steps outweigh their calls.

With a fixed number of samples (`samples_per_round`) the number of actors changes a round's time. It
changes little of what is learned: advantages look no further ahead than their fragment. n actors
take `N / n` steps each, at `step_s` a step, and every call takes `call_overhead_s` beside them.
More actors shorten the round until a call takes longer than what it is made for. So

    n = N * step_s / (r * call_overhead_s),    r = 5 by default,

or fewer: each takes a whole number of steps, `N / n` rounded up, and n is how many can. So little
of N is left out. Both times are medians over recent rounds, and a number up to a fifth below the
exact one stays: measured times vary, and a new number has no use of its own.

| case | outcome |
|---|---|
| nothing measured yet | the fewest actors |
| a call takes no time | the most actors that share all samples but a few |
| fewer than `actors.min` would do | `actors.min`, whatever a call takes |
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
        shares = steps // seen.envs_per_actor
        shared_s = shares * seen.envs_per_actor * step_s
        exact = min(shared_s / share_s if share_s > 0 else math.inf, seen.actors.max)
        before = seen.past[-1].requested
        least, most = (_sharing(shares, part * exact) for part in (1 - _TOLERANCE, 1.0))
        stays = least <= before <= most and before == shares // (shares // before)
        requested = seen.actors.clip(before if stays else most)
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
    """Return how many actors there are at most if none takes fewer than `shares / exact` steps."""
    return max(1, shares // math.ceil(shares / exact)) if exact else 1


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
