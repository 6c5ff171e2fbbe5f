"""Half of a curvature measurement in a second process: what is asked of it, and what comes back.

Both sides work on a half of the samples each, one request after the other: our side names what it
wants in a swap, both work, and a second swap says that the answer lies in memory that both see. So
do the policy and the direction of a product. All float32, on the CPU.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import torch
from torch import Tensor

from services.learner.actor_critic import ActorCritic
from services.learner.arrays import Floats
from services.learner.distributions import Distribution
from services.learner.gradient_noise import Shares
from services.learner.halved_surrogate import Samples, is_halved
from services.learner.mlp_network import MlpActorCritic
from services.learner.second_process import SHARED_FLOATS, Side
from services.learner.surrogate import PolicyPoint, PolicySurrogate, policy_point

T = TypeVar("T")

_DONE, _END, _GRADIENT, _PRODUCT = 0.0, 1.0, 2.0, 3.0
"""What sides tell each other; below 0 the shares of so many trajectories are asked for."""
_VECTORS = 3
_ALIGNED = 16
"""Vectors begin at multiples of so many floats, as tensors do."""


class AcrossProcesses:
    """The sum of two surrogates, with `SecondHalf` at work on the other one: a `Surrogate`."""

    def __init__(self, point: PolicyPoint, samples: Samples, side: Side) -> None:
        """Let the other process begin, and run forward and backward over our half meanwhile.

        Args:
            point: theta0.
            samples: The first half.
            side: Our end of what both processes see.
        """
        self.size = point.size
        self._side = side
        self._seen = _Seen.by(side, point.size)
        point.write_to(self._seen.policy)
        side.swap(_DONE)
        self._first = PolicySurrogate.at(point, **samples._asdict())

    def gradient(self) -> Tensor:
        """Return the gradient of L # [size]."""
        return self._ours(_GRADIENT, self._first.gradient) + self._seen.answer

    def hessian_product(self, direction: Tensor) -> Tensor:
        """Return the Hessian of L times `direction` # [size], as a new tensor # [size]."""
        self._seen.direction.copy_(direction)
        product = self._ours(_PRODUCT, lambda: self._first.hessian_product(direction))
        return product.add_(self._seen.answer)

    def shares(self, num_trajectories: int) -> Shares:
        """Return what each of an even number of trajectories has in L's gradient.

        Raises:
            ValueError: It is odd, or there are none.
        """
        half, odd = divmod(num_trajectories, 2)
        if odd or not half:
            raise ValueError(f"num_trajectories is {num_trajectories}, must be even and positive")
        first = self._ours(-float(half), lambda: self._first.shares(half))
        return first.and_others(Shares(self._seen.direction[:half], self._seen.answer))

    def end(self) -> None:
        """Tell the other process that no more is wanted."""
        self._side.swap(_END)

    def _ours(self, request: float, work: Callable[[], T]) -> T:
        """Return our half of what is asked for, once the other half lies where we see it."""
        self._side.swap(request)
        found = work()
        self._side.swap(_DONE)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondHalf:
    """The second process's part, as values that can be sent; the policy it finds in memory."""

    shapes: tuple[tuple[int, ...], ...]
    """Of the policy's weights."""
    size: int
    """Of all its parameters."""
    distribution: Distribution
    samples: tuple[tuple[Floats, Floats, Floats], ...]
    """Observations, actions and advantages of each."""

    @classmethod
    def of(cls, point: PolicyPoint, samples: Sequence[Samples]) -> Self:
        """Return it.

        Args:
            point: theta0.
            samples: The second half of each surrogate, in the order in which they are asked for.
        """
        return cls(
            shapes=point.shapes,
            size=point.size,
            distribution=point.distribution,
            samples=tuple(
                (some.observation.numpy(), some.action.numpy(), some.advantage.numpy())
                for some in samples
            ),
        )

    def __call__(self, side: Side) -> None:
        """Answer until the other side has enough of each."""
        seen = _Seen.by(side, self.size)
        for samples in self.samples:
            self._answer(side, seen, Samples(*map(torch.from_numpy, samples)))

    def _answer(self, side: Side, seen: "_Seen", samples: Samples) -> None:
        side.swap(_DONE)
        surrogate = PolicySurrogate.at(
            PolicyPoint.within(seen.policy, self.shapes, self.distribution), **samples._asdict()
        )
        while (request := side.swap(_DONE)) != _END:
            if request == _GRADIENT:
                seen.answer.copy_(surrogate.gradient())
            elif request == _PRODUCT:
                seen.answer.copy_(surrogate.hessian_product(seen.direction))
            else:
                shares = surrogate.shares(-int(request))
                seen.direction[: len(shares.squared_norms)] = shares.squared_norms
                seen.answer.copy_(shares.gradient)
            side.swap(_DONE)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Vectors # [size] that both sides see."""

    direction: Tensor
    answer: Tensor
    policy: Tensor

    @classmethod
    def by(cls, side: Side, size: int) -> Self:
        stride = _stride(size)
        vectors = torch.from_numpy(side.shared[: _VECTORS * stride]).view(_VECTORS, stride)
        return cls(*vectors[:, :size].unbind())


def _stride(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def second_process_pays(network: ActorCritic, num_samples: int) -> bool:
    """Whether a second process can, and should, do half of the surrogate's work."""
    return (
        isinstance(network, MlpActorCritic)
        and network.flat.dtype == torch.float32
        and _VECTORS * _stride(policy_point(network).size) <= SHARED_FLOATS
        and is_halved(network, num_samples)
    )
