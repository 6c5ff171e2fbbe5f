"""Gradient steps with the value function's half of each in a second process.

If policy and value function share no layers, a step of one needs only the other's gradient norm,
not finite if its loss is not: the number that the two processes exchange. Each works on copies, and
both results are copied back at the end; the bits equal those of a single process.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learning.arrays import Floats
from learning.cpu.second_process import SecondProcess, Side
from learning.data.minibatch import ShuffledMinibatches, bounds, num_minibatches
from learning.losses.loss_terms import LossRule, Term
from learning.networks.numpy_mlp import HalfParts, NetworkHalf, policy_delta, policy_outputs
from learning.networks.step_terms import StepTerms
from learning.updates.gradient import Gradient
from learning.updates.gradient_steps import StepsTaken, summed_up
from learning.updates.optimiser import AdamPart, FlatAdam
from shared.trajectory.columns import Columns

S = TypeVar("S", "_ValueSamples", Columns[Floats])

MIN_MULTIPLICATIONS = 1 << 26
"""Below this many scalar multiplications of an update, in the value function's forward pass,
sending the samples takes longer than the second process saves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfTaken:
    """The result of one half's steps."""

    adam: AdamPart
    steps: list[list[float] | None]
    """As `FlatAdam.apply` returned them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Half(ABC, Generic[S]):
    """All steps of one half."""

    half: NetworkHalf
    adam: AdamPart
    rule: LossRule

    @abstractmethod
    def samples(self) -> Iterator[S]:
        """Yield those of each step."""

    @abstractmethod
    def differentiated(self, samples: S, at: HalfParts, into: HalfParts) -> Term[Floats]:
        """Return the half's term of the loss at some parameters; write its gradient into others."""

    def __call__(self, side: Side) -> HalfTaken:
        """Take them, each clipped by the whole gradient's norm."""
        adam = FlatAdam.of(self.adam)
        flat = torch.zeros_like(adam.parameters)
        at, into = (HalfParts.of(each.numpy(), self.half) for each in (adam.parameters, flat))

        def whole(square: float) -> float:
            return square + side.swap(square)

        steps = []
        for samples in self.samples():
            term = self.differentiated(samples, at, into)
            steps.append(adam.apply(Gradient(flat=flat, stats=term.stats), whole))
        return HalfTaken(adam=adam.part(), steps=steps)


class _ValueSamples(NamedTuple):
    observation: Floats  # [n, O]
    target: Floats  # [n]
    before: Floats  # [n]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueHalf(_Half[_ValueSamples]):
    """All steps of the value function, as work for a second process."""

    minibatch_size: int
    observation: Floats  # [N, O]
    value_target: Floats  # [N]
    value: Floats  # [N], before the update
    orders: NDArray[np.int64]  # [passes, N]

    def samples(self) -> Iterator[_ValueSamples]:
        """Yield those of each step."""
        count = num_minibatches(len(self.observation), self.minibatch_size)
        for order in self.orders:
            whole = [field[order] for field in (self.observation, self.value_target, self.value)]
            for start, end in bounds(len(order), count):
                yield _ValueSamples(*(field[start:end] for field in whole))

    def differentiated(
        self, samples: _ValueSamples, at: HalfParts, into: HalfParts
    ) -> Term[Floats]:
        """Return the values' term, and write its gradient."""
        inputs, value = at.mlp.forward(samples.observation)
        term: Term[Floats] = self.rule.value_term(value[:, 0], samples.target, samples.before)
        at.mlp.backward(inputs, term.gradient[:, np.newaxis], gradients=into.mlp)
        return term


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyHalf(_Half[Columns[Floats]]):
    """All steps of the policy."""

    terms: StepTerms[Floats]
    minibatches: ShuffledMinibatches
    orders: Sequence[Tensor]
    """Of the samples # [N], for each pass."""

    def samples(self) -> Iterator[Columns[Floats]]:
        """Yield those of each step."""
        return self.minibatches.arrays(self.orders)

    def differentiated(
        self, samples: Columns[Floats], at: HalfParts, into: HalfParts
    ) -> Term[Floats]:
        """Return the policy's term, and write its gradient."""
        inputs, raw = at.mlp.forward(samples.observation)
        outputs = policy_outputs(raw, at.log_std)
        term: Term[Floats] = self.rule.policy_term(outputs, samples, self.terms)
        delta = policy_delta(term.gradient, into.log_std)
        at.mlp.backward(inputs, delta, gradients=into.mlp)
        return term


def take_halved_steps(
    policy: PolicyHalf, value: ValueHalf, adam: FlatAdam, process: SecondProcess
) -> StepsTaken:
    """Take all steps, the value function's in the second process.

    Args:
        policy: The policy's half.
        value: The value function's, with the same minibatches.
        adam: Of the whole network; takes over both results.
        process: Usable.

    Raises:
        SecondProcessLostError: The process ended; nothing has been changed.
    """
    one, other = process.both(policy, value)
    num_stats = len(policy.rule.policy_stats)
    adam.take_over(one.adam, other.adam)
    rows = [
        None
        if mine is None or theirs is None
        # Both end with the norm of the whole gradient.
        else [*mine[:num_stats], *theirs]
        for mine, theirs in zip(one.steps, other.steps, strict=True)
    ]
    return summed_up(rows)
