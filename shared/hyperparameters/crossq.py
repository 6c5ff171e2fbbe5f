"""Hyper-parameters of CrossQ; `shared.hyperparameters.common` says what the sources are.

Nitro's paper runs no CrossQ. *Bhatt* is Bhatt et al., "CrossQ: batch normalization in deep
reinforcement learning for greater sample efficiency and simplicity", ICLR 2024, arXiv 1902.05605,
table 2.
"""

from typing import Annotated

from pydantic import Field

from shared.contracts.message import Number, PositiveFloat, PositiveInt
from shared.hyperparameters.sac import SacHyperparameters


class CrossqHyperparameters(SacHyperparameters):
    """SAC with normalised networks and without slow copies of its critics.

    `target_rate` plays no part.
    """

    learning_rate: PositiveFloat = 1e-3
    """Adam's step size, of the policy, the critics and the temperature alike. Paper: Bhatt.
    Standard: Bhatt."""
    adam_beta1: Annotated[Number, Field(ge=0, lt=1)] = 0.5
    """Decay of Adam's running mean of gradients. Paper: Bhatt. Standard: Bhatt."""
    policy_delay: PositiveInt = 3
    """Gradient steps of the critics for each one of the policy and the temperature. Paper: Bhatt.
    Standard: Bhatt."""
    value_hidden_sizes: tuple[PositiveInt, ...] = (2048, 2048)
    """Widths of the critics' layers; empty: as `hidden_sizes`. Paper: Bhatt. Standard: ours, for
    CPUs."""


PAPER = CrossqHyperparameters()
"""CrossQ as its authors have it."""

STANDARD = CrossqHyperparameters(learning_starts=5_000, value_hidden_sizes=())
"""CrossQ with critics of SAC's width, which a CPU can compute."""
