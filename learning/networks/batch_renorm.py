"""CrossQ's networks: inputs of linear layers are normalised, so that critics need no slow copies.

Bhatt et al., "CrossQ: batch normalization in deep reinforcement learning for greater sample
efficiency and simplicity", ICLR 2024, arXiv 1902.05605. The normalisation is that of Ioffe, "Batch
renormalization", arXiv 1702.03275. It has no gain and bias: a linear layer follows, which has both.
So a policy is published as plain layers, with the running statistics worked into their weights.

Legend: N samples; F inputs of a layer.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from learning.networks.blocks import Layer, forward
from learning.networks.soft_actor_critic import FlatMlps
from shared.policy.blocks import Dense

_EPSILON = 1e-3
"""Added to variances. This and the next four: the authors' code, and Stable-Baselines3's in JAX."""
_RATE = 0.01
"""Fraction of the way that running statistics move towards a minibatch's."""
_WARM_UP = 100_000
"""Number of first minibatches that are normalised only by their own statistics."""
_MOST_SCALE = 3.0
_MOST_SHIFT = 5.0
"""How far a minibatch's deviation and mean may be from the running ones and still be corrected."""

Moments = tuple[Tensor, Tensor]
"""The means and the variances of a layer's inputs: # [F] each."""


class NormalisedMlps(FlatMlps):
    """Dense networks of the same sizes with a batch renormalisation before each layer."""

    def __init__(self, blocks: Sequence[Dense], *, number: int) -> None:
        """Lay out this many networks of these blocks, all zero."""
        super().__init__(blocks, number=number)
        sizes = [block.inputs for block in blocks] * number
        self.statistics = torch.tensor([0.0, 1.0]).repeat_interleave(sum(sizes))
        """Running means, then running variances, of all layers in a row."""
        self.minibatches = torch.zeros(1)
        """Number of minibatches that the running statistics followed so far."""
        self._next = self.statistics.clone()
        """The running statistics as they are after the last minibatch."""
        self._running, self._following = (
            _by_network(flat, sizes, len(blocks)) for flat in (self.statistics, self._next)
        )

    def outputs(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Return each network's outputs, by its running statistics: # [N, outputs] each."""
        return self._outputs(inputs, training=False)

    def training_outputs(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Return what each gives by the statistics of these inputs; `follow` takes them up."""
        return self._outputs(inputs, training=True)

    @property
    def can_follow(self) -> bool:
        """Whether the running statistics stay finite with the last training inputs."""
        return bool(torch.isfinite(self._next).all())

    def follow(self) -> None:
        """Move the running statistics towards those of the last training inputs."""
        self.statistics.copy_(self._next)
        self.minibatches += 1

    def plain_layers(self) -> list[Layer]:
        """Return the first network's layers with the running statistics worked into them."""
        plain = []
        for layer, (mean, variance) in zip(self.networks[0], self._running[0], strict=True):
            weight = layer.weight.detach() / torch.sqrt(variance + _EPSILON)
            plain.append(Layer(weight=weight, bias=layer.bias.detach() - weight @ mean))
        return plain

    def _outputs(self, inputs: Tensor, *, training: bool) -> tuple[Tensor, ...]:
        warm = bool(self.minibatches >= _WARM_UP)
        found = []
        for network in zip(self.networks, self._running, self._following, strict=True):
            x = inputs
            for block, layer, running, following in zip(self._blocks, *network, strict=True):
                if training:
                    x = _renormalised(x, running, following, warm=warm)
                else:
                    mean, variance = running
                    x = (x - mean) / torch.sqrt(variance + _EPSILON)
                x = forward((block,), (layer,), x)
            found.append(x)
        return tuple(found)


def _by_network(flat: Tensor, sizes: list[int], num_layers: int) -> list[list[Moments]]:
    """Return views of the moments of each network's layers."""
    means, variances = (torch.split(part, sizes) for part in flat.chunk(2))
    layers = [*zip(means, variances, strict=True)]
    ends = range(0, len(layers) + 1, num_layers)
    return [layers[start:end] for start, end in pairwise(ends)]


def _renormalised(x: Tensor, running: Moments, following: Moments, *, warm: bool) -> Tensor:
    """Normalise a minibatch # [N, F]; write the running moments moved towards its own."""
    mean, variance = running
    # `torch.var_mean` of columns is ten times as slow on a CPU.
    own_mean = x.mean(dim=0)
    centred = x - own_mean
    own_variance = centred.square().mean(dim=0)
    deviation = torch.sqrt(own_variance + _EPSILON)
    normalised = centred / deviation
    with torch.no_grad():
        usual = torch.sqrt(variance + _EPSILON)
        scale = (deviation / usual).clamp(1.0 / _MOST_SCALE, _MOST_SCALE)
        shift = ((own_mean - mean) / usual).clamp(-_MOST_SHIFT, _MOST_SHIFT)
        torch.lerp(mean, own_mean, _RATE, out=following[0])
        torch.lerp(variance, own_variance, _RATE, out=following[1])
    return normalised * scale + shift if warm else normalised
