"""The surrogate of many samples as a sum over two halves of them, one for each of two cores.

A sum of numbers that are rounded depends on its order. So the samples are halved wherever a second
core could pay, whether there is one or not: the curvature, and every decision that follows from
it, is then the same to the bit on machines with one core and with many.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from torch import Tensor

from services.learner.actor_critic import ActorCritic
from services.learner.gradient_noise import Shares
from services.learner.second_lane import Lane, both
from services.learner.surrogate import Surrogate, policy_surrogate

T = TypeVar("T")

MIN_MULTIPLICATIONS = 1 << 20
"""Below this many scalar multiplications of half of the samples on the way forward, a second
process gains nothing; threads do from four times as many (see `second_lane`)."""


class Samples(NamedTuple):
    """What a surrogate is over."""

    observation: Tensor  # [N, ...]
    action: Tensor  # [N, A] or [N] int64
    advantage: Tensor  # [N]

    def halves(self) -> tuple["Samples", "Samples"]:
        """Return the first and the second half, of which the two means add up to that of all."""
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

    def gradient(self) -> Tensor:
        """Return the gradient of L # [size]."""
        first, second = self._of_both(lambda half: half.gradient())
        return first + second

    def hessian_product(self, direction: Tensor) -> Tensor:
        """Return the Hessian of L times `direction` # [size], as a new tensor # [size]."""
        first, second = self._of_both(lambda half: half.hessian_product(direction))
        return first.add_(second)

    def shares(self, num_trajectories: int) -> Shares | None:
        """Return what each of an even number of trajectories has in L's gradient."""
        first, second = self._of_both(lambda half: half.shares(num_trajectories // 2))
        return None if first is None or second is None else first.and_others(second)

    def _of_both(self, ask: Callable[[Surrogate], T]) -> tuple[T, T]:
        found: dict[int, T] = {}

        def work_on(half: int) -> None:
            found[half] = ask(self._halves[half])

        both(self._lane, lambda: work_on(0), lambda: work_on(1))
        return found[0], found[1]


def half_multiplications(network: ActorCritic, num_samples: int) -> int:
    """Return how many multiplications half of a surrogate's way forward takes, at least."""
    weights = sum(layer.get_parameter("weight").numel() for layer in network.policy)
    return num_samples // 2 * weights


def is_halved(network: ActorCritic, num_samples: int) -> bool:
    """Whether samples are halved, on whatever machine."""
    large = half_multiplications(network, num_samples) >= MIN_MULTIPLICATIONS
    return large and network.flat.device.type == "cpu"


def halved_surrogate(network: ActorCritic, samples: Samples, lane: Lane | None) -> Surrogate:
    """Return the surrogate of whatever network a job has, in halves where it is large.

    Args:
        network: Its present policy is theta0.
        samples: What the surrogate is over.
        lane: May work on the second half, now and later; the bits are the same without.
    """
    if not is_halved(network, len(samples.advantage)):
        return policy_surrogate(network, **samples._asdict())
    made: dict[int, Surrogate] = {}

    def make(half: int, over: Samples) -> None:
        made[half] = policy_surrogate(network, **over._asdict())

    first, second = samples.halves()
    both(lane, lambda: make(0, first), lambda: make(1, second))
    return HalvedSurrogate(made[0], made[1], lane)
