"""SAC's networks: a policy, two critics of state and action, and the critics' slow copies.

The parameters of the policy lie in one flat buffer, those of both critics in another, so that an
optimiser step and a step of the slow copies are one operation each. Every weight is a leaf of
autograd that writes its gradient into a buffer of the same layout.

Legend: N samples; O numbers of an observation; A action size; P parameters.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from learning.networks.blocks import Layer, forward
from shared.policy.blocks import Dense


class FlatMlps:
    """Dense networks of the same sizes in one flat buffer."""

    def __init__(self, blocks: Sequence[Dense], *, number: int) -> None:
        """Lay so many networks of these blocks out, all zero."""
        weights = [block.weight_shape for block in blocks]
        shapes = [shape for weight in weights for shape in (weight, weight[:1])] * number
        num_parameters = sum(map(math.prod, shapes))
        self.flat = torch.zeros(num_parameters)  # [P]
        self.gradient = torch.zeros(num_parameters)  # [P], where `differentiate` writes
        self._blocks = tuple(blocks)
        self._leaves = _views(self.flat, shapes)
        for leaf, written in zip(self._leaves, _views(self.gradient, shapes), strict=True):
            leaf.requires_grad_()
            leaf.grad = written
        per_network = len(shapes) // number
        self.networks = tuple(
            tuple(
                Layer(weight=self._leaves[i], bias=self._leaves[i + 1])
                for i in range(first, first + per_network, 2)
            )
            for first in range(0, len(shapes), per_network)
        )
        """The layers of each."""

    def initialise(self, generator: torch.Generator) -> None:
        """Draw weights and biases uniformly within 1 / sqrt(inputs), as torch's own layers are."""
        with torch.no_grad():
            for layers in self.networks:
                for layer in layers:
                    bound = 1.0 / math.sqrt(layer.weight.shape[1])
                    layer.weight.uniform_(-bound, bound, generator=generator)
                    layer.bias.uniform_(-bound, bound, generator=generator)

    def outputs(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Return what each network gives for the same inputs: # [N, outputs] each."""
        return tuple(forward(self._blocks, layers, inputs) for layers in self.networks)

    def differentiate(self, loss: Tensor) -> Tensor:
        """Return the gradient of a loss by these parameters alone # [P], good until the next."""
        self.gradient.zero_()
        loss.backward(inputs=self._leaves)  # type: ignore[no-untyped-call]
        return self.gradient


class SoftActorCritic:
    """The policy, the critics and their targets."""

    def __init__(
        self,
        policy: Sequence[Dense],
        critic: Sequence[Dense],
        *,
        seed: int,
    ) -> None:
        """Initialise them; targets begin as the critics are.

        Args:
            policy: Blocks from observations # [N, O] to outputs # [N, 2A].
            critic: Blocks of each critic, from an observation and an action to a value.
            seed: Of the first weights; torch's global random state is left alone.
        """
        self.policy = FlatMlps(policy, number=1)
        self.critics = FlatMlps(critic, number=2)
        self.targets = FlatMlps(critic, number=2)
        generator = torch.Generator().manual_seed(seed)
        self.policy.initialise(generator)
        self.critics.initialise(generator)
        self.targets.flat.copy_(self.critics.flat)

    def policy_outputs(self, observation: Tensor) -> Tensor:
        """Return the parameters of the actions' distributions # [N, 2A] at some observations."""
        return self.policy.outputs(observation)[0]


def values(critics: FlatMlps, observation: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Return both critics' values # [N] of actions # [N, A] at observations # [N, O]."""
    first, second = critics.outputs(torch.cat((observation, action), dim=1))
    return first.squeeze(1), second.squeeze(1)


def _views(flat: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    ends = [0]
    for shape in shapes:
        ends.append(ends[-1] + math.prod(shape))
    return [
        flat[start:end].view(shape)
        for (start, end), shape in zip(pairwise(ends), shapes, strict=True)
    ]
