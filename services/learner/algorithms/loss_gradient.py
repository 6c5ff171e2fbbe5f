"""What a loss hands to the way back through the network."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LossGradient:
    """A minibatch's loss as derivatives with respect to the network's answers."""

    outputs: Tensor  # [n, D]
    value: Tensor  # [n]
    stats: Tensor  # [S], in the order the loss's module names
