"""Gradient steps with the value function's half of each in a second process.

Where policy and value function share nothing, a step of one needs of the other only whether its
loss and gradient are finite and how long the gradient is: the number that the two processes swap.
Each works on copies, and what came of them is taken over when both are done; the bits are those of
steps that one process takes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learning.cpu.numpy_mlp import OneMlp, policy_delta, policy_outputs
from learning.cpu.second_process import SecondProcess, Side
from learning.data.arrays import Floats
from learning.data.batch import Minibatch, TrainingBatch
from learning.data.minibatch import ShuffledMinibatches, bounds, num_minibatches
from learning.losses.loss_terms import LossRule, Term
from learning.networks.actor_critic import NetworkHalf
from learning.networks.distributions import StepTerms
from learning.updates.gradient import Gradient, GradientSource
from learning.updates.gradient_steps import StepsTaken, summed_up
from learning.updates.optimiser import AdamPart, FlatAdam

S = TypeVar("S")

MIN_MULTIPLICATIONS = 1 << 26
"""Below this many scalar multiplications of an update, on the value function's way forward, sending
the samples takes longer than what is saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfTaken:
    """What one half's steps came to."""

    adam: AdamPart
    steps: list[list[float] | None]
    """As `FlatAdam.apply` returned them."""


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
    policy_version: int

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
        policy_version: int,
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
            policy_version=policy_version,
        )

    def __call__(self, side: Side) -> HalfTaken:
        """Take them."""
        adam = FlatAdam.of(self.adam)
        source = _ValueGradients(self, adam.parameters)
        return _taken(self._samples(), adam, source, side)

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
    policy_version: int

    def __call__(self, side: Side) -> HalfTaken:
        """Take them."""
        adam = FlatAdam.of(self.adam)
        source = _PolicyGradients(self, adam.parameters)
        return _taken(self.minibatches.arrays(self.orders), adam, source, side)


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


class _ValueGradients:
    """The value function's part of gradients: a `GradientSource`."""

    def __init__(self, work: ValueHalf, parameters: Tensor) -> None:
        self._work = work
        self._flat = torch.zeros_like(parameters)
        self._mlp = OneMlp.within(parameters.numpy(), work.half.mlp)
        self._into = OneMlp.within(self._flat.numpy(), work.half.mlp)

    def gradient(self, samples: _ValueSamples) -> Gradient:
        """Return the gradient over some samples."""
        inputs, value = self._mlp.forward(samples.observation)
        term: Term[Floats] = self._work.rule.value_term(value[:, 0], samples.target, samples.before)
        self._mlp.backward(inputs, term.gradient[:, np.newaxis], gradients=self._into)
        return Gradient(
            flat=self._flat,
            stats=term.stats,
            policy_version=self._work.policy_version,
            num_samples=len(samples.target),
        )


class _PolicyGradients:
    """The policy's part of gradients: a `GradientSource`."""

    def __init__(self, work: PolicyHalf, parameters: Tensor) -> None:
        self._work = work
        self._flat = torch.zeros_like(parameters)
        self._mlp = OneMlp.within(parameters.numpy(), work.half.mlp)
        self._into = OneMlp.within(self._flat.numpy(), work.half.mlp)
        self._log_std, self._log_std_into = (
            None if work.half.log_std is None else flat.numpy()[work.half.log_std]
            for flat in (parameters, self._flat)
        )

    def gradient(self, samples: Minibatch[Floats]) -> Gradient:
        """Return the gradient over some samples."""
        inputs, raw = self._mlp.forward(samples.observation)
        term: Term[Floats] = self._work.rule.policy_term(
            policy_outputs(raw, self._log_std), samples, self._work.terms
        )
        delta = policy_delta(term.gradient, self._log_std_into)
        self._mlp.backward(inputs, delta, gradients=self._into)
        return Gradient(
            flat=self._flat,
            stats=term.stats,
            policy_version=self._work.policy_version,
            num_samples=len(samples.observation),
        )


def _taken(
    samples: Iterable[S], adam: FlatAdam, source: GradientSource[S], side: Side
) -> HalfTaken:
    """Take a half's steps, each as long as the whole gradient says."""

    def whole(square: float) -> float:
        return square + side.swap(square)

    steps = [adam.apply(source.gradient(some), whole) for some in samples]
    return HalfTaken(adam=adam.part(), steps=steps)
