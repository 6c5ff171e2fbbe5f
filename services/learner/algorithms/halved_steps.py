"""Gradient steps with the value function's half of each in a second process.

Where policy and value function share nothing, a step of one needs of the other only whether its
loss and gradient are finite and how long the gradient is: the number that the two processes swap.
Each works on copies, and what came of them is taken over when both are done; the bits are those of
steps that one process takes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from services.learner.actor_critic import NetworkHalf
from services.learner.algorithms.gradient_steps import StepsTaken, summed_up
from services.learner.algorithms.loss_terms import LossRule, Term
from services.learner.algorithms.minibatch import (
    Minibatch,
    ShuffledMinibatches,
    bounds,
    num_minibatches,
)
from services.learner.algorithms.optimiser import AdamPart, FlatAdam, Whole
from services.learner.arrays import Floats
from services.learner.batch import TrainingBatch
from services.learner.distributions import StepTerms
from services.learner.numpy_mlp import OneMlp, policy_delta
from services.learner.second_process import SecondProcess, Side

MIN_MULTIPLICATIONS = 1 << 26
"""Below this many scalar multiplications of an update, on the value function's way forward, sending
the samples takes longer than what is saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfTaken:
    """What one half's steps came to."""

    adam: AdamPart
    steps: list[list[float] | None]
    """As `FlatAdam.step` returned them."""


class _ValueSamples(NamedTuple):
    observation: Floats  # [n, O]
    target: Floats  # [n]
    before: Floats  # [n]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueHalf:
    """All steps of the value function, as work for a second process."""

    half: NetworkHalf
    adam: AdamPart
    rule: LossRule
    minibatch_size: int
    observation: Floats  # [N, O]
    value_target: Floats  # [N]
    value: Floats  # [N], before the update
    orders: NDArray[np.int64]  # [passes, N]

    @classmethod
    def of(
        cls,
        batch: TrainingBatch,
        *,
        half: NetworkHalf,
        adam: AdamPart,
        rule: LossRule,
        minibatch_size: int,
        orders: Sequence[Tensor],
    ) -> Self:
        """Return the steps over a batch on the CPU; `orders` are of the samples # [N]."""
        return cls(
            half=half,
            adam=adam,
            rule=rule,
            minibatch_size=minibatch_size,
            observation=batch.observation.numpy(),
            value_target=batch.value_target.numpy(),
            value=batch.value.numpy(),
            orders=np.stack([order.numpy() for order in orders]),
        )

    def __call__(self, side: Side) -> HalfTaken:
        """Take them."""
        adam = FlatAdam.of(self.adam)
        gradients = self.gradients(adam.parameters.numpy(), adam.gradient.numpy())
        whole = _by_swapping(side)
        steps = [adam.step(stats, whole) for stats in gradients]
        return HalfTaken(adam=adam.part(), steps=steps)

    def gradients(self, parameters: Floats, gradient: Floats) -> Iterator[Floats]:
        """Write the gradients # [P] at the present parameters # [P], one by one; yield stats."""
        mlp, gradients = _look_at(self.half, parameters, gradient)

        def differentiate(samples: _ValueSamples) -> Floats:
            term: Term[Floats] = self.rule.value_term(samples.target, samples.before)
            inputs, value = mlp.forward(samples.observation)
            mlp.backward(inputs, term.slope(value[:, 0])[:, np.newaxis], gradients=gradients)
            return term.stats()

        return map(differentiate, self._samples())

    def _samples(self) -> Iterator[_ValueSamples]:
        count = num_minibatches(len(self.observation), self.minibatch_size)
        for order in self.orders:
            whole = [field[order] for field in (self.observation, self.value_target, self.value)]
            for start, end in bounds(len(order), count):
                yield _ValueSamples(*(field[start:end] for field in whole))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyHalf:
    """All steps of the policy."""

    half: NetworkHalf
    adam: AdamPart
    rule: LossRule
    terms: StepTerms[Floats]
    minibatches: ShuffledMinibatches
    orders: Sequence[Tensor]
    """Of the samples # [N], for each pass."""

    def __call__(self, side: Side) -> HalfTaken:
        """Take them."""
        adam = FlatAdam.of(self.adam)
        gradients = self.gradients(adam.parameters.numpy(), adam.gradient.numpy())
        whole = _by_swapping(side)
        steps = [adam.step(stats, whole) for stats in gradients]
        return HalfTaken(adam=adam.part(), steps=steps)

    def gradients(self, parameters: Floats, gradient: Floats) -> Iterator[Floats]:
        """Write the gradients # [P] at the present parameters # [P], one by one; yield stats."""
        mlp, gradients = _look_at(self.half, parameters, gradient)
        log_std, log_std_gradient = (
            None if self.half.log_std is None else flat[self.half.log_std]
            for flat in (parameters, gradient)
        )

        def differentiate(minibatch: Minibatch[Floats]) -> Floats:
            term: Term[Floats] = self.rule.policy_term(minibatch, self.terms)
            inputs, raw = mlp.forward(minibatch.observation)
            delta = policy_delta(
                raw, term.slope, log_std=log_std, log_std_gradient=log_std_gradient
            )
            mlp.backward(inputs, delta, gradients=gradients)
            return term.stats()

        return map(differentiate, self.minibatches.arrays(self.orders))


def take_halved_steps(
    policy: PolicyHalf, value: ValueHalf, adam: FlatAdam, process: SecondProcess
) -> StepsTaken:
    """Take all steps, the value function's in the second process.

    Args:
        policy: The policy's half.
        value: The value function's, with the same minibatches.
        adam: Of the whole network; takes over what came of both.
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
        # Both end with the length of the whole gradient.
        else [*mine[:num_stats], *theirs]
        for mine, theirs in zip(one.steps, other.steps, strict=True)
    ]
    return summed_up(rows)


def _by_swapping(side: Side) -> Whole:
    return lambda square: square + side.swap(square)


def _look_at(half: NetworkHalf, parameters: Floats, gradient: Floats) -> tuple[OneMlp, OneMlp]:
    """Return a half's parameters and their gradients as a network each."""
    network, gradients = (OneMlp.within(flat, half.mlp) for flat in (parameters, gradient))
    return network, gradients
