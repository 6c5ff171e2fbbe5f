"""A weight of the policy that the second process differentiates and steps.

Where the value function has little to do, because most values are left out (`distant_values.py`),
the process that steps it would wait for more than half of every step. It takes the policy's largest
weight between hidden layers besides: the product that makes the weight's gradient, and its share of
Adam. In each step the policy's side waits for the weight before the layer's way forward, and hands
over the product's factors on the way back; all of it lies in memory that both sides see. Every
number is computed as one process would compute it.
"""

import math
from dataclasses import dataclass

from services.learner import gemm
from services.learner.actor_critic import NetworkHalf
from services.learner.algorithms.optimiser import AdamPart, FlatAdam
from services.learner.arrays import Floats
from services.learner.numpy_mlp import WeightPlace
from services.learner.second_process import SHARED_FLOATS, Side

MIN_MULTIPLICATIONS = 1 << 22
"""Below this many scalar multiplications of the product, handing over saves little."""

_READY = 0.0
_ALIGNED = 16
"""Arrays begin at multiples of so many floats, a line of the cache.

Adam's kernel takes at most so many numbers at a time, and rounds what is left over at the end of an
array otherwise: a weight of another size would have other bits when it is stepped by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LentWeight:
    """What both sides have to know."""

    place: WeightPlace
    """In the policy's half of the flat parameters."""
    max_samples: int
    """Of a step."""

    @property
    def fits(self) -> bool:
        """Whether what both sides see has room for it."""
        return sum(map(_room, self._shapes())) <= SHARED_FLOATS

    def within(self, shared: Floats) -> tuple[Floats, Floats, Floats]:
        """Look at the weight # [out, in] and the factors # [max, out] and [max, in]."""
        start, views = 0, []
        for shape in self._shapes():
            views.append(shared[start : start + math.prod(shape)].reshape(shape))
            start += _room(shape)
        weight, delta, h = views
        return weight, delta, h

    def _shapes(self) -> tuple[tuple[int, int], ...]:
        outputs, inputs = self.place.shape
        return (outputs, inputs), (self.max_samples, outputs), (self.max_samples, inputs)


def lendable(policy: NetworkHalf, minibatch_size: int) -> LentWeight | None:
    """Return the weight that could be lent; None if that saves no time, or would change bits."""
    place = policy.mlp.largest_inner()
    if place is None or minibatch_size * place.size < MIN_MULTIPLICATIONS:
        return None
    if place.size % _ALIGNED:
        return None
    lent = LentWeight(place=place, max_samples=minibatch_size)
    return lent if lent.fits else None


def policy_pieces(policy: NetworkHalf, lent: LentWeight | None) -> tuple[slice, ...]:
    """Return whose squares are summed apart: the weight that could be lent comes last."""
    if lent is None:
        return (slice(0, policy.size),)
    span = lent.place.span
    return slice(0, span.start), slice(span.stop, policy.size), span


class Lender:
    """The side that goes through the policy: `numpy_mlp.Elsewhere`."""

    def __init__(self, lent: LentWeight, side: Side) -> None:
        """Look at what both sides see."""
        self.index = lent.place.index
        self.weight, self._delta, self._h = lent.within(side.shared)
        self._side = side

    def await_weight(self) -> None:
        """See `Elsewhere`; once more after the last step."""
        self._side.take()

    def give(self, delta: Floats, h: Floats) -> None:
        """See `Elsewhere`."""
        count = len(delta)
        self._delta[:count], self._h[:count] = delta, h
        self._side.give(count)

    def whole(self, square: float) -> float:
        """See `optimiser.Whole`."""
        self._side.give(square)
        return square + self._side.take() + self._side.take()


class Borrower:
    """The side that steps the weight, and the value function."""

    def __init__(self, lent: LentWeight, part: AdamPart, side: Side) -> None:
        """Put the weight where both sides see it.

        Args:
            lent: What is lent.
            part: The weight as it is before the first step.
            side: Our end.
        """
        self._side = side
        self._shown, self._delta, self._h = lent.within(side.shared)
        self._adam = FlatAdam.of(part)
        self._weight, self._gradient = (
            flat.numpy().reshape(lent.place.shape)
            for flat in (self._adam.parameters, self._adam.gradient)
        )
        self._show()

    def step(self, square: float) -> float:
        """Take the step whose factors the other side gives; see `optimiser.Whole`.

        Args:
            square: Of the value function's gradient.
        """
        count = int(self._side.take())
        gemm.array_matmul(self._delta[:count].T, self._h[:count], out=self._gradient)
        ours = self._adam.squared_length()
        self._side.give(ours)
        self._side.give(square)
        whole = self._side.take() + ours + square
        self._adam.move(whole)
        # Before the value function's step: the other side waits for the weight.
        self._show()
        return whole

    def part(self) -> AdamPart:
        """Return what became of the weight."""
        return self._adam.part()

    def _show(self) -> None:
        # Stepped apart and then copied: single stores to lines that the other core has in its cache
        # take several times as long, above all where the cores have no cache in common.
        self._shown[...] = self._weight
        self._side.give(_READY)


def _room(shape: tuple[int, ...]) -> int:
    return -(-math.prod(shape) // _ALIGNED) * _ALIGNED
