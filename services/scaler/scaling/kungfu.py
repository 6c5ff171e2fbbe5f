"""Actors by gradient noise scale: noisier gradients get more data.

Mai et al., "KungFu", OSDI 2020, monitors the gradient noise scale of McCandlish et al., arXiv
1812.06162, `B = S / |G|^2`. Both estimates are averaged over rounds separately, then divided:
averaging their ratio would be biased. The paper's baseline (section 8.2) is

    I_k = clip(round(I_min * B_k / B_first), I_min, I_max), never fewer than before.

Deviation: the published code multiplies the current number by `B_k / B_first` whenever it exceeds
1. This compounds and reaches I_max within a few rounds for any measurements.

| case | outcome |
|---|---|
| no measurement in this round | averages and number stay |
| an average is not positive, so the scale is undefined | the number stays |
| no scale was ever defined | I_min |
| the quotient overflows | I_max |
| not an n-th round | averages are updated, the number stays |
"""

import math

from services.scaler.scaling.base import NoiseMemory, ScalingDecision, ScalingInput, ScalingPolicy
from shared.contracts.rounds import GradientNoise
from shared.contracts.scaling_spec import ActorRange, KungFuScaling


class KungFuPolicy(ScalingPolicy[KungFuScaling]):
    """Actors in proportion to the noise scale; its state of earlier rounds is its memory."""

    def decide(self, seen: ScalingInput) -> ScalingDecision:
        """Average, divide, compare with the first scale."""
        memory = self._averaged(seen.memory, seen.gradient_noise)
        before = seen.actors.min if seen.memory is None else seen.memory.num_actors
        if memory is None:
            return _decision(seen.actors.clip(before), None, "nothing measured yet")
        scale = noise_scale(memory)
        if scale is None:
            why = "noise scale undefined: an average is not positive"
            return _decision(seen.actors.clip(before), memory, why)
        first = memory.first_scale or scale
        requested, why = before, f"noise scale {scale:.3g}, {first:.3g} at first"
        if seen.round_index % self.parameters.every_rounds == 0:
            requested = max(before, _proportional(scale / first, seen.actors))
        else:
            why += ", not looked at in this round"
        memory = memory.model_copy(update={"first_scale": first})
        return _decision(seen.actors.clip(requested), memory, why)

    def _averaged(
        self, memory: NoiseMemory | None, noise: GradientNoise | None
    ) -> NoiseMemory | None:
        if noise is None:
            return memory
        if memory is None:
            return NoiseMemory(
                squared_norm=noise.squared_norm,
                variance=noise.variance,
                first_scale=None,
                num_actors=1,
            )
        old = self.parameters.smoothing
        averages = {
            "squared_norm": old * memory.squared_norm + (1 - old) * noise.squared_norm,
            "variance": old * memory.variance + (1 - old) * noise.variance,
        }
        return memory.model_copy(update=averages)


def noise_scale(memory: NoiseMemory) -> float | None:
    """Return `S / |G|^2` of the averages; None unless it is positive and finite."""
    if memory.squared_norm <= 0 or memory.variance <= 0:
        return None
    scale = memory.variance / memory.squared_norm
    return scale if 0 < scale < math.inf else None


def _proportional(growth: float, actors: ActorRange) -> int:
    exact = actors.min * growth
    return actors.max if exact >= actors.max else actors.clip(math.floor(exact + 0.5))


def _decision(requested: int, memory: NoiseMemory | None, why: str) -> ScalingDecision:
    kept = None if memory is None else memory.model_copy(update={"num_actors": requested})
    reason = f"kungfu: {why}: {requested} actors"
    return ScalingDecision(requested=requested, reason=reason, memory=kept)
