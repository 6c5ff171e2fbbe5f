"""Which of a batch's samples the curvature is measured over."""

import torch
from torch import Tensor

from services.learner.batch import TrainingBatch
from shared.job_spec import DetectorRule


def spread_samples(batch: TrainingBatch, rule: DetectorRule) -> Tensor:
    """Return the indices of the samples a rule takes from a batch, in order # [n] int64."""
    if rule.num_trajectories is None or rule.num_trajectories >= batch.num_trajectories:
        return evenly_spread(batch.num_samples, rule.num_samples)
    length = batch.num_samples // batch.num_trajectories
    trajectories = evenly_spread(batch.num_trajectories, rule.num_trajectories)
    available = trajectories.unsqueeze(1) * length + torch.arange(length)
    return available.flatten()[evenly_spread(available.numel(), rule.num_samples)]


def evenly_spread(available: int, wanted: int) -> Tensor:
    """Return min(wanted, available) distinct indices below `available`, evenly spaced from 0.

    >>> evenly_spread(10, 4).tolist()
    [0, 2, 5, 7]
    """
    count = min(wanted, available)
    return torch.arange(count) * available // count
