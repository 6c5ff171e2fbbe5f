"""A gradient as a value: passed from its source to the optimiser."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from torch import Tensor

from learning.arrays import Array, Floats
from learning.losses.loss_terms import LossRule
from shared.trajectory.columns import Columns

S_contra = TypeVar("S_contra", contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """The gradient of a loss over some samples."""

    flat: Tensor  # [P], in the layout of the parameters it is of
    stats: Tensor | Floats  # [S], means over the samples of what the loss is made of


class GradientSource(Protocol[S_contra]):
    """Computes gradients of one loss at the present parameters."""

    def gradient(self, samples: S_contra) -> Gradient:
        """Return the gradient over some samples; `flat` is good until the next call."""
        ...


class Group(Protocol):
    """Processes that take the same steps, each with gradients over its own rows."""

    @property
    def rows(self) -> slice:
        """This process's rows of each minibatch."""
        ...

    def of_all(
        self,
        own: GradientSource[Columns[Array]],
        *,
        rule: LossRule,
        like: Tensor,
        sizes: Iterator[int],
    ) -> GradientSource[Columns[Array]]:
        """Return the gradients of all together, over whole minibatches.

        Args:
            own: Of this process's rows.
            rule: The loss.
            like: Of the gradient's form # [P].
            sizes: Samples of each whole minibatch, in order of use.
        """
        ...
