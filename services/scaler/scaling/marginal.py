"""The number of actors with the most progress per dollar.

A round of n fragments costs `c0 + c1 n`, with a fixed cost c0 and a cost c1 per actor. A gradient
step on n fragments gains `n / (n + N)` of the maximum (McCandlish et al., arXiv 1812.06162,
equation 2.6), where N is the gradient noise scale in fragments. The gain per dollar,

    f(n) = n / ((n + N) (c0 + c1 n)),

has one maximum, at `N / (n (n + N)) = c1 / (c0 + c1 n)`:

    n* = sqrt(N c0 / c1).

It is flat: `f(2 n*) = f(n* / 2) >= 8/9 f(n*)`. So an estimate of N, c0 or c1 within a factor of 4
is enough. If time has a value of w dollars, w times the seconds is added to c0 and c1. A job may
set c0/c1 itself.

| case | outcome |
|---|---|
| no noise scale yet, no round billed yet, or rounds cost nothing | the number stays |
| at first | the fewest actors, but 4 if in the range: fewer are not compared |
| no measurement in this round | the averages stay |
| an average is not positive: noise hides the gradient | the last noise scale again |
| an actor costs nothing | the most actors, step by step |
| within 15 % of the number before | that number stays |
"""

import math

from services.scaler.scaling.base import (
    NoiseMemory,
    RoundCosts,
    ScalingDecision,
    ScalingInput,
    ScalingPolicy,
)
from services.scaler.scaling.kungfu import noise_scale
from shared.contracts.rounds import FEWEST_FRAGMENTS, GradientNoise
from shared.contracts.scaling_spec import MarginalScaling

_TOLERANCE = 0.15
"""Relative to the previous number, which stays within it: f is flat, and estimates are noisy."""
_S_PER_HOUR = 3600.0


class MarginalPolicy(ScalingPolicy[MarginalScaling]):
    """Actors by noise scale and bill; its memory is the averages and the previous number."""

    needs_fragment_noise = True

    def decide(self, seen: ScalingInput) -> ScalingDecision:
        """Update the averages, compute n*, and move towards it in steps."""
        fewest = seen.actors.clip(max(seen.actors.min, FEWEST_FRAGMENTS))
        before = max(fewest, self._before(seen))
        memory = _averaged(seen.memory, seen.fragment_noise, kept=self.parameters.smoothing)
        exact, why = self._worth(memory, seen.costs)
        wanted, how = before, ""
        if exact is not None and abs(exact - before) > _TOLERANCE * before:
            wanted = stepped(exact, before, most=self.parameters.max_step)
            how = ", step by step" if abs(wanted - exact) > 1 else ""
        requested = seen.actors.clip(max(fewest, wanted))
        if requested != wanted:
            how = f", {requested} at {'least' if requested > wanted else 'most'}"
        why += how
        kept = memory.model_copy(update={"num_actors": requested})
        reason = f"marginal: {why}: {requested} actors"
        return ScalingDecision(requested=requested, reason=reason, memory=kept)

    @property
    def num_rounds(self) -> int:
        """One: the previous round's number is needed if another policy decided it."""
        return 1

    def _before(self, seen: ScalingInput) -> int:
        if seen.memory is not None:
            return seen.actors.clip(seen.memory.num_actors)
        return seen.actors.clip(seen.past[-1].requested if seen.past else seen.actors.min)

    def _worth(self, memory: NoiseMemory, costs: RoundCosts | None) -> tuple[float | None, str]:
        """Return n*, or None if unknown, and its explanation."""
        scale = memory.last_scale
        if scale is None:
            hidden = memory.variance > 0
            return None, (
                "noise hides the gradient, and no noise scale is known"
                if hidden
                else "no noise was measured yet"
            )
        again = "" if noise_scale(memory) else ", the last one as noise hides the gradient now"
        noise = f"noise scale of {scale:.3g} fragments{again}"
        ratio = self.parameters.cost_ratio
        if ratio is not None:
            exact = worthwhile_actors(scale, fixed_usd=ratio, actor_usd=1.0)
            return exact, f"{noise}, a round costs {ratio:.3g} actors: {exact:.3g} are best"
        if costs is None:
            return None, f"{noise}; no round is billed yet"
        usd_per_s = self.parameters.value_of_time_usd_per_hour / _S_PER_HOUR
        fixed_usd = costs.fixed_usd + usd_per_s * costs.fixed_s
        actor_usd = costs.actor_usd + usd_per_s * costs.actor_s
        exact = worthwhile_actors(scale, fixed_usd=fixed_usd, actor_usd=actor_usd)
        paid = f"${fixed_usd:.3g} a round and ${actor_usd:.3g} an actor"
        if exact is None:
            return None, f"{noise}; rounds cost nothing"
        return exact, f"{noise}, {paid}: {exact:.3g} are best"


def worthwhile_actors(scale: float, *, fixed_usd: float, actor_usd: float) -> float | None:
    """Return n*, which may be 0 or infinite; None if both costs are 0.

    Args:
        scale: N, above 0.
        fixed_usd: c0, at least 0.
        actor_usd: c1, at least 0.
    """
    if actor_usd == 0:
        return math.inf if fixed_usd else None
    return math.sqrt(scale) * math.sqrt(fixed_usd / actor_usd)


def stepped(exact: float, before: int, *, most: float) -> int:
    """Return the integer nearest to `exact` within a factor `most` of `before`.

    A change by one actor is always allowed.
    """
    highest = max(math.floor(before * most), before + 1)
    lowest = min(math.ceil(before / most), before - 1)
    return math.floor(min(max(exact, lowest), highest) + 0.5)


def _averaged(
    memory: NoiseMemory | None, noise: GradientNoise | None, *, kept: float
) -> NoiseMemory:
    """Return both averages after a round.

    Both start at 0. The bias cancels in their quotient, so first measurements count no more than
    later ones.
    """
    old = memory or NoiseMemory(squared_norm=0.0, variance=0.0, first_scale=None, num_actors=1)
    if noise is None:
        return old
    averages = old.model_copy(
        update={
            "squared_norm": kept * old.squared_norm + (1 - kept) * noise.squared_norm,
            "variance": kept * old.variance + (1 - kept) * noise.variance,
        }
    )
    scale = noise_scale(averages)
    return averages if scale is None else averages.model_copy(update={"last_scale": scale})
