"""A batch cut into the samples of single gradient steps, reshuffled for every pass."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from services.learner.advantages import standardised_minibatch
from services.learner.batch import TrainingBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Minibatch:
    """Samples of one gradient step; fields as in `TrainingBatch`."""

    observation: Tensor  # [n, O] or [n, C, H, W]
    action: Tensor  # [n, A] or [n] int64
    advantage: Tensor  # [n], with the batch's weights in it
    value_target: Tensor  # [n]
    value: Tensor  # [n], V(s) before the update
    log_prob: Tensor  # [n]
    outputs: Tensor  # [n, D]


def shuffled_minibatches(
    batch: TrainingBatch,
    *,
    num_epochs: int,
    minibatch_size: int,
    generator: torch.Generator,
    standardise: bool = False,
) -> Iterator[Minibatch]:
    """Yield the minibatches of all passes, in the order they are to be used.

    N samples make ceil(N / minibatch_size) minibatches per pass, of sizes that differ by at most
    one: every sample is used once per pass and no step is taken on a tiny rest.

    Args:
        batch: The samples.
        num_epochs: Passes.
        minibatch_size: Most samples of a minibatch.
        generator: On the CPU; one permutation is drawn from it at the start of each pass.
        standardise: Whether to standardise the advantages of each minibatch by themselves. That
            the batch's were before makes no difference: it is undone.
    """
    count = math.ceil(batch.num_samples / minibatch_size)
    for _ in range(num_epochs):
        order = torch.randperm(batch.num_samples, generator=generator)
        order = order.to(batch.observation.device)
        # Gathering a whole pass at once leaves nothing but views to each step.
        fields = (
            batch.action.index_select(0, order),
            _advantages(batch, order, count, standardise=standardise),
            batch.value_target.index_select(0, order),
            batch.value.index_select(0, order),
            batch.log_prob.index_select(0, order),
            batch.outputs.index_select(0, order),
        )
        parts = [field.tensor_split(count) for field in fields]
        observations = _gathered(batch.observation, order, count)
        for observation, action, advantage, value_target, value, log_prob, outputs in zip(
            observations, *parts, strict=True
        ):
            yield Minibatch(
                observation=observation,
                action=action,
                advantage=advantage,
                value_target=value_target,
                value=value,
                log_prob=log_prob,
                outputs=outputs,
            )


def _advantages(batch: TrainingBatch, order: Tensor, count: int, *, standardise: bool) -> Tensor:
    """Return a pass's advantages # [N] in their order, as the loss takes them."""
    advantage = batch.advantage.index_select(0, order)
    if standardise:
        advantage = _standardised(advantage, count)
    if batch.weight is None:
        return advantage
    # Weighted last: the mean that standardising takes off must not reach samples of weight 0, which
    # are actions the policy would never take, and where its log-probability is steepest.
    return advantage * batch.weight.index_select(0, order)


def _standardised(advantage: Tensor, count: int) -> Tensor:
    """Return a pass's advantages # [N], those of each of `count` minibatches standardised.

    Minibatches of one size are the rows of one matrix; `tensor_split` puts the longer ones first.
    """
    size, num_longer = divmod(len(advantage), count)
    longer, shorter = advantage.tensor_split((num_longer * (size + 1),))
    rows = (longer.view(num_longer, size + 1), shorter.view(count - num_longer, size))
    return torch.cat([standardised_minibatch(part).flatten() for part in rows if len(part)])


def _gathered(observation: Tensor, order: Tensor, count: int) -> Iterable[Tensor]:
    """Return the observations of each step; images one step at a time, to save memory."""
    if observation.ndim > 2:
        return (observation.index_select(0, part) for part in order.tensor_split(count))
    return observation.index_select(0, order).tensor_split(count)
