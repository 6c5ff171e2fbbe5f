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
    advantage: Tensor  # [n]
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
            batch.action,
            batch.advantage,
            batch.value_target,
            batch.value,
            batch.log_prob,
            batch.outputs,
        )
        parts = [field.index_select(0, order).tensor_split(count) for field in fields]
        observations = _gathered(batch.observation, order, count)
        for observation, action, advantage, value_target, value, log_prob, outputs in zip(
            observations, *parts, strict=True
        ):
            yield Minibatch(
                observation=observation,
                action=action,
                advantage=standardised_minibatch(advantage) if standardise else advantage,
                value_target=value_target,
                value=value,
                log_prob=log_prob,
                outputs=outputs,
            )


def _gathered(observation: Tensor, order: Tensor, count: int) -> Iterable[Tensor]:
    """Return the observations of each step; images one step at a time, to save memory."""
    if observation.ndim > 2:
        return (observation.index_select(0, part) for part in order.tensor_split(count))
    return observation.index_select(0, order).tensor_split(count)
