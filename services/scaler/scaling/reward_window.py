"""Actors by recent returns: more while returns change, fewer while they stagnate.

The published code has this alternative to its detector (`window_scheduler.py`). It starts at the
most actors, and adds or removes a fixed number by the mean gradient of a window of returns. Its
threshold is absolute; here it is relative to the size of the returns, so that one value fits every
environment. As there, a falling return counts as change, too.
"""

import statistics
from collections.abc import Sequence
from itertools import pairwise

from services.scaler.scaling.base import ScalingDecision, ScalingInput, ScalingPolicy
from shared.contracts.scaling_spec import RewardWindowScaling


class RewardWindowPolicy(ScalingPolicy[RewardWindowScaling]):
    """The previous round's number, plus or minus a step."""

    def decide(self, seen: ScalingInput) -> ScalingDecision:
        """Take a step from the previous round's number."""
        known = [r.training_return for r in seen.past if r.training_return is not None]
        returns = known[-self.parameters.window :]
        before = seen.past[-1].requested if seen.past else seen.actors.max
        step, why = self._step(returns)
        requested = seen.actors.clip(before + step)
        reason = f"reward_window: {why}: {requested} actors"
        return ScalingDecision(requested=requested, reason=reason)

    @property
    def num_rounds(self) -> int:
        """The window."""
        return self.parameters.window

    def _step(self, returns: Sequence[float]) -> tuple[int, str]:
        if len(returns) < 2:
            return 0, f"{len(returns)} rounds with returns, 2 are needed: no change"
        change = relative_change(returns)
        moving = change > self.parameters.flat
        how = "still moving" if moving else "standing still"
        step = self.parameters.step if moving else -self.parameters.step
        return step, f"returns change by {change:.3g} of their size per round, {how}"


def relative_change(returns: Sequence[float]) -> float:
    """Return |mean gradient| divided by the mean |return|; 0 if all returns are 0.

    The gradient is the central difference, one-sided at the ends.
    """
    peak = max(map(abs, returns))
    if peak == 0:
        return 0.0
    scaled = [value / peak for value in returns]  # sums of huge numbers must not overflow
    rises = [b - a for a, b in pairwise(scaled)]
    inner = [(a + b) / 2 for a, b in pairwise(rises)]
    gradient = statistics.fmean([rises[0], *inner, rises[-1]])
    return abs(gradient) / statistics.fmean(map(abs, scaled))
