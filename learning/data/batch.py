"""The samples an update reads, flat.

Legend: N samples, one environment after the other, each in time order; O numbers per observation;
D distribution parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from learning.data.samples import SAMPLE_FIELDS, Minibatch


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBatch(Minibatch[Tensor]):
    """All samples of an update, in an order that does not depend on when trajectories arrived."""

    num_trajectories: int = 1
    """Actors, or off-policy their environments; each has an equal share of the samples, in one
    piece."""
    weight: Tensor | None = None
    """What advantages are multiplied with after they are normalised # [N] float32; None: 1."""

    @property
    def num_samples(self) -> int:
        """N."""
        return self.observation.shape[0]

    def weighted(self) -> "TrainingBatch":
        """Return the batch with the weights in the advantages."""
        if self.weight is None:
            return self
        return replace(self, advantage=self.advantage * self.weight, weight=None)

    def picked(self, indices: Tensor) -> Minibatch[Tensor]:
        """Return some of the samples, with their weights in the advantages."""
        weighted = self.weighted()
        return Minibatch(**{name: getattr(weighted, name)[indices] for name in SAMPLE_FIELDS})


def joined(batches: Sequence[TrainingBatch]) -> TrainingBatch:
    """Return the samples of some batches, whose trajectories are equally long, in their order.

    Weights are in the advantages then.
    """
    if len(batches) == 1:
        return batches[0].weighted()
    given = [batch.weighted() for batch in batches]
    columns = {name: torch.cat([getattr(batch, name) for batch in given]) for name in SAMPLE_FIELDS}
    return TrainingBatch(**columns, num_trajectories=sum(b.num_trajectories for b in batches))
