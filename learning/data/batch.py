"""The flat samples of an update: see `learning.data.samples`."""

from collections.abc import Sequence

import torch
from torch import Tensor

from learning.data.samples import SAMPLE_FIELDS
from shared.trajectory.columns import Columns


def weighted(batch: Columns[Tensor]) -> Columns[Tensor]:
    """Return a batch with the weights in the advantages."""
    if "weight" not in batch.arrays:
        return batch
    advantage = batch.advantage * batch.weight
    given = batch.mapped(lambda column: column, *SAMPLE_FIELDS).of_trajectories(
        batch.num_trajectories
    )
    return given.replaced(advantage=advantage)


def picked(batch: Columns[Tensor], indices: Tensor) -> Columns[Tensor]:
    """Return some of a batch's samples, with their weights in the advantages."""
    return weighted(batch).mapped(lambda column: column[indices], *SAMPLE_FIELDS)


def joined(batches: Sequence[Columns[Tensor]]) -> Columns[Tensor]:
    """Return the samples of some batches, whose trajectories are equally long, in their order.

    Weights are in the advantages then.
    """
    given = [weighted(batch) for batch in batches]
    if len(given) == 1:
        return given[0]
    columns = {name: torch.cat([each.arrays[name] for each in given]) for name in SAMPLE_FIELDS}
    return Columns(**columns).of_trajectories(sum(each.num_trajectories for each in given))
