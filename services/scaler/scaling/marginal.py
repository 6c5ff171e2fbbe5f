"""As many actors as make the most progress for a dollar.

A round of n fragments costs `c0 + c1 n`: what any round costs, and what each actor adds. A gradient
step of n fragments gains `n / (n + N)` of the most that it could (McCandlish et al., arXiv
1812.06162, equation 2.6), N the gradient noise scale in fragments. Gain for a dollar,

    f(n) = n / ((n + N) (c0 + c1 n)),

has one maximum, where `N / (n (n + N)) = c1 / (c0 + c1 n)`:

    n* = sqrt(N c0 / c1).

It is flat: `f(2 n*) = f(n* / 2) >= 8/9 f(n*)`. So N, c0 and c1 need be known to a factor of 4 only.
An hour that is worth w dollars adds w times the seconds of c0 and c1. A job may give c0/c1 itself.

| case | outcome |
|---|---|
| no noise scale yet, no round billed yet, or rounds cost nothing | the number stays |
| at first | the fewest actors, but 4 where the range has them: fewer are not compared |
| nothing measured in this round | the averages stay |
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
"""Of the number before: within it the number stays, as f is flat and estimates are not exact."""
_S_PER_HOUR = 3600.0


class MarginalPolicy(ScalingPolicy[MarginalScaling]):
    """Actors by noise scale and bill; averages and the number before are its memory."""

    needs_fragment_noise = True

    def decide(self, seen: ScalingInput) -> ScalingDecision:
        """Average, take the root, and go there step by step."""
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
        """The one before, for its number, where another policy decided about it."""
        return 1

    def _before(self, seen: ScalingInput) -> int:
        if seen.memory is not None:
            return seen.actors.clip(seen.memory.num_actors)
        return seen.actors.clip(seen.past[-1].requested if seen.past else seen.actors.min)

    def _worth(self, memory: NoiseMemory, costs: RoundCosts | None) -> tuple[float | None, str]:
        """Return n*, None where it is not known, and how it comes about."""
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
    """Return n*, which may be 0 or infinite; None where nothing costs anything.

    Args:
        scale: N, above 0.
        fixed_usd: c0, at least 0.
        actor_usd: c1, at least 0.
    """
    if actor_usd == 0:
        return math.inf if fixed_usd else None
    return math.sqrt(scale) * math.sqrt(fixed_usd / actor_usd)


def stepped(exact: float, before: int, *, most: float) -> int:
    """Return the whole number nearest to `exact` within a factor `most` of the one before.

    One actor more or less is always within.
    """
    highest = max(math.floor(before * most), before + 1)
    lowest = min(math.ceil(before / most), before - 1)
    return math.floor(min(max(exact, lowest), highest) + 0.5)


def _averaged(
    memory: NoiseMemory | None, noise: GradientNoise | None, *, kept: float
) -> NoiseMemory:
    """Return both averages after a round.

    They begin at 0, which their quotient does not tell: first measurements count no more than
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
