"""A gradient as a value: what whoever computes it hands to whoever steps along it."""

from dataclasses import dataclass
from typing import Protocol, TypeVar

from torch import Tensor

from learning.data.arrays import Floats

S_contra = TypeVar("S_contra", contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """The gradient of a loss over some samples."""

    flat: Tensor  # [P], in the layout of the parameters it is of
    stats: Tensor | Floats  # [S], means over the samples of what the loss is made of
    policy_version: int
    """Of the policy that the update began with."""
    num_samples: int


class GradientSource(Protocol[S_contra]):
    """Computes gradients of one loss at the present parameters."""

    def gradient(self, samples: S_contra) -> Gradient:
        """Return the gradient over some samples; `flat` is good until the next call."""
        ...
