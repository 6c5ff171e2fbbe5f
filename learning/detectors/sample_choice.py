"""The choice of a batch's samples for the curvature, and the weight of each.

At ratio 1 the Hessian is a mean over samples of A (H + g g^T), taken through the network: A the
advantage, g and H the gradient and Hessian of log pi by the distribution parameters. A few samples
carry most of it, so samples are drawn in proportion to |A| (|g|^2 + c), without
replacement, and weighted by the inverse of its chance (Horvitz and Thompson, JASA 47, 1952). g is
taken at the outputs in the batch: those of the policy before the update, or their substitute
off-policy. Any outputs would be valid; closer outputs have less variance. Decision 024.
"""

from typing import NamedTuple, Self

import torch
from torch import Tensor

from learning.networks.distributions import Distribution
from shared.contracts.detector_rule import DetectorRule
from shared.trajectory.columns import Columns

_EVEN_PART = 0.3
"""c, as a part of the mean of |g|^2: stands for what H bends where g is small, and bounds how much
a sample can count for whose g has grown since."""


class SampleChoice(NamedTuple):
    """Some of a batch's samples, in its order.

    The mean of weight * x over them equals the mean of x over all, averaged over a drawing's
    starts.
    """

    indices: Tensor
    """Indices in the batch # [n] int64."""
    weights: Tensor
    """Weight of each # [n] float32, 1 if all weights are equal."""

    @classmethod
    def alike(cls, indices: Tensor) -> Self:
        """Return samples of equal weight."""
        return cls(indices, torch.ones(len(indices)))

    def on(self, device: torch.device) -> Self:
        """Return the choice on the batch's device."""
        return type(self)(self.indices.to(device), self.weights.to(device))


def chosen_samples(
    batch: Columns[Tensor], rule: DetectorRule, distribution: Distribution, *, start: float = 0.5
) -> SampleChoice:
    """Return the samples a rule takes from a batch, on the CPU.

    For the whole loss they are spread evenly: its values' part has curvature at any advantages.

    Args:
        batch: The round's samples.
        rule: Number of samples and trajectories, and the method.
        distribution: Of the actions.
        start: As in `systematic`; another one draws other samples.
    """
    available = _available(batch, rule)
    if rule.num_samples >= len(available):
        return SampleChoice.alike(available)
    if rule.sampling == "even" or rule.objective == "total_loss":
        return SampleChoice.alike(available[evenly_spread(len(available), rule.num_samples)])
    advantage, bend = (part[available] for part in _advantages_and_bends(batch, distribution))
    sizes = advantage.abs() * bend
    if not torch.isfinite(sizes).all():  # a diverged policy, which the Hessian will reveal
        return SampleChoice.alike(available[evenly_spread(len(available), rule.num_samples)])
    chances = inclusion_probabilities(sizes, rule.num_samples)
    # In this order samples of similar curvature and sign are also drawn in proportion.
    order = torch.argsort(advantage.sign() * bend, stable=True)
    chosen = order[systematic(chances[order], start=start)].sort().values
    weights = len(chosen) / (len(available) * chances[chosen])
    return SampleChoice(available[chosen], weights.float())


def _available(batch: Columns[Tensor], rule: DetectorRule) -> Tensor:
    """Return the indices of the trajectories that a rule allows."""
    wanted = rule.num_trajectories or batch.num_trajectories
    length = batch.num_samples // batch.num_trajectories
    trajectories = evenly_spread(batch.num_trajectories, wanted)
    return (trajectories.unsqueeze(1) * length + torch.arange(length)).flatten()


def _advantages_and_bends(
    batch: Columns[Tensor], distribution: Distribution
) -> tuple[Tensor, Tensor]:
    """Return A and |g|^2 + c of all samples, both # [N] float64, on the CPU."""
    with torch.no_grad():
        # On the CPU, so that a GPU's rounding does not change the drawn samples.
        outputs, action = batch.outputs.cpu(), batch.action.cpu()
        squared = distribution.terms(outputs, outputs, action).score.double().square().sum(1)
        return batch.advantage.double().cpu(), squared + _EVEN_PART * squared.mean()


def evenly_spread(available: int, wanted: int) -> Tensor:
    """Return min(wanted, available) distinct indices below `available`, evenly spaced from 0.

    >>> evenly_spread(10, 4).tolist()
    [0, 2, 5, 7]
    """
    count = min(wanted, available)
    return torch.arange(count) * available // count


def inclusion_probabilities(sizes: Tensor, wanted: int) -> Tensor:
    """Return each sample's chance of being drawn, in proportion to its size or 1 # [N] float64.

    They add up to `wanted`, or to the number of sizes that are not 0 where that is less.

    Args:
        sizes: Not negative. # [N] float64
        wanted: How many samples to draw.

    >>> inclusion_probabilities(torch.tensor([6.0, 1.0, 2.0, 1.0]), 3).tolist()
    [1.0, 0.5, 1.0, 0.5]
    """
    wanted = min(wanted, int(torch.count_nonzero(sizes)))
    chances = torch.zeros_like(sizes)
    certain = torch.zeros_like(sizes, dtype=torch.bool)
    while (left := wanted - int(certain.sum())) > 0:
        rest = torch.where(certain, 0.0, sizes)
        chances = left * rest / rest.sum()
        above = chances >= 1.0
        if not above.any():
            break
        certain |= above
    return torch.where(certain, 1.0, chances)


def systematic(chances: Tensor, *, start: float = 0.5) -> Tensor:
    """Return samples drawn at even distances along the sum of their chances, in order # [n] int64.

    Neighbours are drawn in proportion to their total chance: the order stratifies.

    Args:
        chances: Of each sample, from 0 to 1, those below 1 adding up to a whole number.
            # [N] float64
        start: Position of the first draw along the sum, above 0 and below 1.
    """
    certain = chances >= 1.0
    ends = torch.where(certain, 0.0, chances).cumsum(0)
    passed = torch.floor(ends + (1.0 - start))  # how many of start, start + 1, ... lie below
    drawn = torch.diff(passed, prepend=passed.new_zeros(1)) > 0
    return torch.nonzero(drawn | certain).flatten()
