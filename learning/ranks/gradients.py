"""Gradients over whole minibatches whose rows are spread over the ranks of a group.

Rank r of W has the rows r, r + W, r + 2 W, ... of every minibatch. Its gradient counts for as many
samples as it has, and the sum over all ranks is that of the whole: one sum a step, of the gradient
and the stats together. Every rank does the rest (norm, clipping, Adam) by itself, on equal bits.
"""

from collections.abc import Callable, Iterator
from typing import Generic

import torch
from torch import Tensor

from learning.arrays import Array
from learning.losses.loss_terms import LossRule, stat_names
from learning.updates.gradient import Gradient, GradientSource
from shared.trajectory.columns import Columns


class RankGradients(Generic[Array]):
    """The gradients of all ranks together: a `GradientSource`."""

    def __init__(
        self,
        own: GradientSource[Columns[Array]],
        add_up: Callable[[Tensor], None],
        *,
        rule: LossRule,
        like: Tensor,
        sizes: Iterator[int],
    ) -> None:
        """Compute nothing yet.

        Args:
            own: Of this rank's rows.
            add_up: Replaces each rank's part by the sum over all ranks.
            rule: The loss.
            like: Of the gradient's form # [P].
            sizes: Samples of each whole minibatch, in order of use.
        """
        self._own: GradientSource[Columns[Array]] = own
        self._add_up = add_up
        self._sums = rule.sums_samples
        self._sizes = sizes
        self._both = like.new_zeros(len(like) + len(stat_names(rule)))
        self._flat, self._stats = self._both[: len(like)], self._both[len(like) :]

    def gradient(self, samples: Columns[Array]) -> Gradient:
        """Return the gradient over a whole minibatch, given this rank's rows of it."""
        whole, number = next(self._sizes), len(samples.observation)
        if number:
            own = self._own.gradient(samples)
            share = number / whole
            torch.mul(own.flat, 1.0 if self._sums else share, out=self._flat)
            torch.mul(torch.as_tensor(own.stats), share, out=self._stats)
        else:
            self._both.zero_()  # a mean over nothing would be NaN
        self._add_up(self._both)
        return Gradient(flat=self._flat, stats=self._stats)
