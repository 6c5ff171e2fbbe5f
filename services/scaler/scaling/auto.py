"""The number of actors that can share a round's samples while steps outweigh call overhead.

With a fixed number of samples N (`samples_per_round`), the number of actors changes a round's time.
It hardly changes learning: advantages look no further ahead than their fragment. n actors take
`N / n` steps each, at `step_s` per step, and every call adds `call_overhead_s`. More actors shorten
the round until the overhead outweighs the steps. So

    n = N * step_s / (r * call_overhead_s),    r = 5 by default,

or fewer: each actor takes a whole number of steps, `N / n` rounded up, and n is the number of full
shares. So little of N is left out. Both times are medians over recent rounds. A number up to a
fifth below the exact one stays: measured times vary, and a change has no benefit of its own.

| case | outcome |
|---|---|
| nothing measured yet | the fewest actors |
| a call has no overhead | the most actors that share all samples but a few |
| fewer than `actors.min` suffice | `actors.min`, regardless of overhead |
"""

import math
from collections.abc import Sequence
from statistics import median

from services.scaler.scaling.base import ScalingDecision, ScalingInput, ScalingPolicy
from shared.contracts.scaling_spec import AutoScaling

_ROUNDS = 8
"""Rounds in the medians; the newest may be incomplete when the next is decided."""
_TOLERANCE = 0.2
"""Fraction of the exact number; the previous number stays if it is within this range below."""


class AutoPolicy(ScalingPolicy[AutoScaling]):
    """Number of actors from the times of a step and of a call."""

    def decide(self, seen: ScalingInput) -> ScalingDecision:
        """Return the number of actors for a round's steps."""
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
        """The rounds of the medians."""
        return _ROUNDS


def _sharing(shares: int, exact: float) -> int:
    """Return the most actors such that none takes fewer than `shares / exact` steps."""
    return max(1, shares // math.ceil(shares / exact)) if exact else 1


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
