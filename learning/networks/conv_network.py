"""The actor-critic network for images: one convolutional trunk for the policy and the value.

As in every published Atari result, and in RLlib: features are computed once, and the policy and the
value are one linear layer each on top of them. Images beside other parts have such networks each;
policy and value then have hidden layers of their own, as Stable-Baselines3's `MultiInputPolicy` has
them. The layers are those of `shared.policy.blocks`. Pixels are divided by 255. Gradients are
autograd's: convolutions are large enough that a graph costs nothing beside them.

Images stay uint8 until they enter the network, which takes a quarter of the memory.

Legend: N samples; C, H, W an image's channels, height and width; F numbers of flat parts; D
distribution parameters.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor

from learning.networks.autograd_network import AutogradActorCritic
from learning.networks.blocks import forward
from shared.policy.blocks import Dense, Parts, layers_of
from shared.policy.spec import PolicySpec


class ConvActorCritic(AutogradActorCritic):
    """Policy and value over images # [N, C, H, W] uint8, or flat parts # [N, F] float32."""

    def __init__(self, spec: PolicySpec, value: Sequence[Dense]) -> None:
        """Lay the network out: the value's layers see what the policy's last ones see.

        Of a single image that is the last one, of parts all layers behind the images' networks.
        """
        behind = 1 if isinstance(spec.blocks[0], Parts) else len(spec.blocks) - 1
        self._trunk, self._heads = spec.blocks[:behind], (spec.blocks[behind:], tuple(value))
        self._num_shared = len(layers_of(self._trunk))
        super().__init__(spec, value)

    def both_at(
        self, parameters: Mapping[str, Tensor], observation: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the policy's last layer # [N, H] and the state values # [N]."""
        seen = self.features(parameters, observation)
        behind = self.layers("policy", parameters)[self._num_shared :]
        outputs = forward(self._heads[0], behind, seen)
        return outputs, self._values(parameters, seen)

    def values_at(self, parameters: Mapping[str, Tensor], observation: Tensor) -> Tensor:
        """Return the state values that these network parameters give."""
        return self._values(parameters, self.features(parameters, observation))

    def features(self, parameters: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """Return what both heads see of the images # [N, C, H, W] or parts, # [N, features]."""
        layers = self.layers("policy", parameters)[: self._num_shared]
        return forward(self._trunk, layers, images)

    def _values(self, parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
        return forward(self._heads[1], self.layers("value", parameters), features).squeeze(1)
