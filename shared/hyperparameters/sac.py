"""Hyper-parameters of SAC; `shared.hyperparameters.common` says what the sources are.

Nitro's paper runs no SAC. *Haarnoja* is Haarnoja et al., "Soft actor-critic algorithms and
applications", arXiv 1812.05905, table 1, which Stable-Baselines3 has as its defaults. *CleanRL* is
`sac_continuous_action.py`.
"""

from shared.contracts.message import Number, PositiveFloat
from shared.hyperparameters.replay import ReplayHyperparameters


class SacHyperparameters(ReplayHyperparameters):
    """SAC: twin critics, a squashed Gaussian policy and a learned temperature."""

    first_temperature: PositiveFloat = 1.0
    """Temperature at the start: what a nat of entropy is worth, in units of reward. Paper:
    Haarnoja's code. Standard: CleanRL."""
    target_entropy: Number = -1.0
    """Entropy, in nats for each number of an action in [-1, 1], that the temperature is steered
    towards. Paper: Haarnoja. Standard: Haarnoja."""


PAPER = SacHyperparameters()
"""SAC as its authors have it."""

STANDARD = SacHyperparameters(learning_starts=5_000)
"""SAC as its authors have it, with the shorter beginning of CleanRL."""
