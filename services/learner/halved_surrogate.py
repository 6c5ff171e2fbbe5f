"""The surrogate of many samples as a sum over two halves of them, one for each of two cores.

A sum of numbers that are rounded depends on its order. So the samples are halved wherever a second
core could pay, whether there is one or not: the curvature, and every decision that follows from
it, is then the same to the bit on machines with one core and with many.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

from services.learner.actor_critic import ActorCritic
from services.learner.arrays import Floats
from services.learner.distributions import Distribution
from services.learner.mlp import Layer
from services.learner.mlp_network import MlpActorCritic
from services.learner.second_lane import Lane, both
from services.learner.second_process import SHARED_FLOATS, Side
from services.learner.surrogate import (
    PolicyPoint,
    PolicySurrogate,
    Surrogate,
    policy_point,
    policy_surrogate,
)

MIN_MULTIPLICATIONS = 1 << 20
"""Below this many scalar multiplications of half of the samples on the way forward, a second
process gains nothing; threads do from four times as many (see `second_lane`)."""
_GO_ON, _ENOUGH = 1.0, 0.0


class Samples(NamedTuple):
    """What a surrogate is over."""

    observation: Tensor  # [N, ...]
    action: Tensor  # [N, A] or [N] int64
    advantage: Tensor  # [N]

    def halves(self) -> tuple["Samples", "Samples"]:
        """Return the first and the second half, each a mean of its own."""
        count = len(self.advantage)
        cut = (count + 1) // 2
        first, second = (
            Samples(
                self.observation[part],
                self.action[part],
                self.advantage[part] * (len(self.advantage[part]) / count),
            )
            for part in (slice(0, cut), slice(cut, count))
        )
        return first, second


class HalvedSurrogate:
    """The sum of two surrogates of one network, a `Surrogate` itself."""

    def __init__(self, first: Surrogate, second: Surrogate, lane: Lane | None) -> None:
        """Nothing is computed.

        Args:
            first: Over some of the samples.
            second: Over the others.
            lane: May work on `second` meanwhile; the result is the same to the bit.
        """
        self.size = first.size
        self._halves = (first, second)
        self._lane = lane

    def hessian_product(self, direction: Tensor) -> Tensor:
        """Return the Hessian of L times `direction` # [size], as a new tensor # [size]."""
        products: dict[int, Tensor] = {}

        def work_on(half: int) -> None:
            products[half] = self._halves[half].hessian_product(direction)

        both(self._lane, lambda: work_on(0), lambda: work_on(1))
        return products[0].add_(products[1])


class AcrossProcesses:
    """The same sum, with `SecondHalf` at work in the other process; float32 on the CPU."""

    def __init__(self, first: Surrogate, side: Side) -> None:
        """Nothing is computed.

        Args:
            first: Over the first half of the samples.
            side: Our end of what both processes see.
        """
        self.size = first.size
        self._first = first
        self._side = side
        self._direction, self._product = _two_vectors(side, first.size)

    def hessian_product(self, direction: Tensor) -> Tensor:
        """Return the Hessian of L times `direction` # [size], as a new tensor # [size]."""
        self._direction.copy_(direction)
        self._side.swap(_GO_ON)
        product = self._first.hessian_product(direction)
        self._side.swap(_GO_ON)
        return product.add_(self._product)

    def end(self) -> None:
        """Tell the other process that no product is wanted any more."""
        self._side.swap(_ENOUGH)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondHalf:
    """Products over the second half of the samples, as work for a second process."""

    layers: tuple[Layer[Floats], ...]
    log_std: Floats | None
    distribution: Distribution
    observation: Floats
    action: Floats
    advantage: Floats

    @classmethod
    def of(cls, network: MlpActorCritic, samples: Samples) -> Self:
        """Return it as values that can be sent; `samples` are all of them."""
        point, (_, samples) = policy_point(network), samples.halves()
        return cls(
            layers=tuple(
                Layer(weight=layer.weight.numpy(), bias=layer.bias.numpy())
                for layer in point.layers
            ),
            log_std=None if point.log_std is None else point.log_std.numpy(),
            distribution=point.distribution,
            observation=samples.observation.numpy(),
            action=samples.action.numpy(),
            advantage=samples.advantage.numpy(),
        )

    def __call__(self, side: Side) -> None:
        """Multiply until the other side has enough."""
        surrogate = PolicySurrogate.at(
            PolicyPoint(
                layers=tuple(
                    Layer(weight=torch.from_numpy(layer.weight), bias=torch.from_numpy(layer.bias))
                    for layer in self.layers
                ),
                log_std=None if self.log_std is None else torch.from_numpy(self.log_std),
                distribution=self.distribution,
            ),
            observation=torch.from_numpy(self.observation),
            action=torch.from_numpy(self.action),
            advantage=torch.from_numpy(self.advantage),
        )
        direction, product = _two_vectors(side, surrogate.size)
        while side.swap(_GO_ON) == _GO_ON:
            product.copy_(surrogate.hessian_product(direction))
            side.swap(_GO_ON)


def _two_vectors(side: Side, size: int) -> tuple[Tensor, Tensor]:
    """Return a direction and a product # [size] each, where both sides see them."""
    direction, product = side.shared[:size], side.shared[size : 2 * size]
    return torch.from_numpy(direction), torch.from_numpy(product)


def half_multiplications(network: ActorCritic, num_samples: int) -> int:
    """Return how many multiplications half of a surrogate's way forward takes, at least."""
    weights = sum(layer.get_parameter("weight").numel() for layer in network.policy)
    return num_samples // 2 * weights


def _halved(network: ActorCritic, num_samples: int) -> bool:
    """Whether samples are halved, on whatever machine."""
    large = half_multiplications(network, num_samples) >= MIN_MULTIPLICATIONS
    return large and network.flat.device.type == "cpu"


def second_process_pays(network: ActorCritic, num_samples: int) -> bool:
    """Whether a second process can, and should, do half of the surrogate's products."""
    flat = network.flat
    return (
        isinstance(network, MlpActorCritic)
        and flat.dtype == torch.float32
        and 2 * len(flat) <= SHARED_FLOATS
        and _halved(network, num_samples)
    )


def halved_surrogate(network: ActorCritic, samples: Samples, lane: Lane | None) -> Surrogate:
    """Return the surrogate of whatever network a job has, in halves where it is large.

    Args:
        network: Its present policy is theta0.
        samples: What the surrogate is over.
        lane: As in `HalvedSurrogate`.
    """
    if not _halved(network, len(samples.advantage)):
        return policy_surrogate(network, **samples._asdict())
    first, second = (policy_surrogate(network, **half._asdict()) for half in samples.halves())
    return HalvedSurrogate(first, second, lane)
