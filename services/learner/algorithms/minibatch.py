"""A batch cut into the samples of single gradient steps, reshuffled for every pass."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from services.learner.batch import TrainingBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Minibatch:
    """Samples of one gradient step; fields as in `TrainingBatch`."""

    observation: Tensor  # [n, O]
    action: Tensor  # [n, A] or [n] int64
    advantage: Tensor  # [n]
    value_target: Tensor  # [n]
    log_prob: Tensor  # [n]
    outputs: Tensor  # [n, D]


def shuffled_minibatches(
    batch: TrainingBatch, *, num_epochs: int, minibatch_size: int, generator: torch.Generator
) -> Iterator[Minibatch]:
    """Yield the minibatches of all passes, in the order they are to be used.

    N samples make ceil(N / minibatch_size) minibatches per pass, of sizes that differ by at most
    one: every sample is used once per pass and no step is taken on a tiny rest.

    Args:
        batch: The samples.
        num_epochs: Passes.
        minibatch_size: Most samples of a minibatch.
        generator: On the CPU; one permutation is drawn from it at the start of each pass.
    """
    count = math.ceil(batch.num_samples / minibatch_size)
    for _ in range(num_epochs):
        order = torch.randperm(batch.num_samples, generator=generator)
        order = order.to(batch.observation.device)
        # Gathering a whole pass at once leaves nothing but views to each step.
        fields = (
            batch.observation,
            batch.action,
            batch.advantage,
            batch.value_target,
            batch.log_prob,
            batch.outputs,
        )
        parts = [field.index_select(0, order).tensor_split(count) for field in fields]
        for observation, action, advantage, value_target, log_prob, outputs in zip(
            *parts, strict=True
        ):
            yield Minibatch(
                observation=observation,
                action=action,
                advantage=advantage,
                value_target=value_target,
                log_prob=log_prob,
                outputs=outputs,
            )
