"""The actor-critic network for images: one convolutional trunk for the policy and the value.

As every published Atari result, and RLlib's own, has it: what is seen is worked out once, and the
policy and the value are one linear layer each on top of it. The layers are those of
`shared.policy.blocks`. Pixels are divided by 255. Gradients are autograd's: convolutions are
large enough that a graph costs nothing beside them.

Images stay uint8 until they enter the network, which takes a quarter of the memory.

Legend: N samples; C, H, W an image's channels, height and width; D distribution parameters.
"""

from collections.abc import Mapping

from torch import Tensor

from learning.networks.autograd_network import AutogradActorCritic
from learning.networks.blocks import forward
from shared.policy.blocks import Dense
from shared.policy.spec import PolicySpec


class ConvActorCritic(AutogradActorCritic):
    """Policy and value over images # [N, C, H, W] uint8 (or float of the same range)."""

    def __init__(self, spec: PolicySpec, value: Dense) -> None:
        """Lay the network out: the value is one layer beside the policy's last."""
        self._trunk, self._heads = spec.blocks[:-1], (spec.blocks[-1:], (value,))
        super().__init__(spec, (value,))

    def both_at(
        self, parameters: Mapping[str, Tensor], observation: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the policy's last layer # [N, H] and the state values # [N]."""
        seen = self.features(parameters, observation)
        outputs = forward(self._heads[0], self.layers("policy", parameters)[-1:], seen)
        return outputs, self._values(parameters, seen)

    def values_at(self, parameters: Mapping[str, Tensor], observation: Tensor) -> Tensor:
        """Return the state values that these network parameters give."""
        return self._values(parameters, self.features(parameters, observation))

    def features(self, parameters: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """Return what both heads see of the images # [N, C, H, W], # [N, features]."""
        return forward(self._trunk, self.layers("policy", parameters)[:-1], images)

    def _values(self, parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
        return forward(self._heads[1], self.layers("value", parameters), features).squeeze(1)
