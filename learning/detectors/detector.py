"""The seam for measurements of the new policy after every update, as input of the scaler.

A new detector is a file with a class of this form, and a line in `registry.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from learning.losses.loss_terms import LossRule
from learning.networks.actor_critic import ActorCritic
from shared.contracts.rounds import Curvature
from shared.trajectory.columns import Columns

Measurement = Curvature | Mapping[str, float]
"""A curvature, which scaling policies use, or other numbers by name, which each round's record has
among its stats as `measured_{name}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStart:
    """An update's start: the policy that made its samples."""

    parameters: Tensor  # [P], in the network's layout
    step_sizes: Tensor  # [P], what Adam multiplied a gradient with, but for one common factor


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySamples:
    """An algorithm's last update, as a detector sees it."""

    batch: Columns[Tensor]
    """The samples learned from, with the weights in their advantages."""
    rule: LossRule | None = None
    """The loss of that update; None if no detector needs it."""
    start: UpdateStart | None = None
    """Start of an on-policy algorithm's update; None before its first step."""


class Detector(Protocol):
    """Measures a policy; changes neither it nor the samples, nor any global random state."""

    def measure(self, policy: ActorCritic, samples: PolicySamples) -> Measurement | None:
        """Measure the present policy on the samples; None if they allow no measurement."""
        ...
