"""The surrogate of many samples as a sum over two halves of them, one for each of two threads.

A sum of numbers that are rounded depends on its order. So the samples are halved wherever a second
thread could pay, whether there is one or not: the curvature, and every decision that follows from
it, is then the same to the bit on machines with one core and with many.
"""

from torch import Tensor

from services.learner.networks import ActorCritic
from services.learner.second_lane import Lane, large_enough
from services.learner.surrogate import Surrogate, policy_surrogate


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

        if self._lane is None:
            work_on(0)
            work_on(1)
        else:
            self._lane.both(lambda: work_on(0), lambda: work_on(1))
        return products[0].add_(products[1])


def half_multiplications(network: ActorCritic, num_samples: int) -> int:
    """Return how many multiplications half of a surrogate's way forward takes, at least."""
    weights = sum(layer.get_parameter("weight").numel() for layer in network.policy)
    return num_samples // 2 * weights


def halved_surrogate(
    network: ActorCritic,
    *,
    observation: Tensor,
    action: Tensor,
    advantage: Tensor,
    lane: Lane | None,
) -> Surrogate:
    """Return the surrogate of whatever network a job has, in halves where it is large.

    Arguments as in `policy_surrogate`; `lane` as in `HalvedSurrogate`.
    """
    count = len(advantage)
    if not large_enough(half_multiplications(network, count), advantage.device):
        return policy_surrogate(
            network, observation=observation, action=action, advantage=advantage
        )
    cut = (count + 1) // 2
    first, second = (
        policy_surrogate(
            network,
            observation=observation[part],
            action=action[part],
            # Each half is a mean of its own.
            advantage=advantage[part] * (len(advantage[part]) / count),
        )
        for part in (slice(0, cut), slice(cut, count))
    )
    return HalvedSurrogate(first, second, lane)
