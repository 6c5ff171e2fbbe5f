"""Hyper-parameters of ARS; `shared.hyperparameters.common` says what the sources are.

Nitro's paper runs no ARS. *Mania* is Mania, Guy and Recht, "Simple random search provides a
competitive approach to reinforcement learning", arXiv 1803.07055: algorithms 1 and 2, and tables 9
and 10. *Contrib* is the default of SB3-Contrib's ARS. What differs by task is in
`nitro.spec.starting_job`.
"""

from typing import Annotated

from pydantic import Field, StrictBool

from shared.contracts.message import NonNegativeFloat, PositiveFloat, PositiveFloat32, PositiveInt
from shared.hyperparameters.search import MAX_DIRECTIONS, Directions, SearchHyperparameters
from shared.policy.blocks import Activation


class ArsHyperparameters(SearchHyperparameters):
    """Augmented random search: whole episodes of perturbed policies, and no gradients."""

    hidden_sizes: tuple[PositiveInt, ...] = ()
    """Widths of the policy's hidden layers; empty: the policy is linear. Paper: Mania. Standard:
    Mania."""
    activation: Activation = "tanh"
    """Activation after each hidden layer: `tanh`, `relu` or `elu`. Paper: not used. Standard: not
    used."""
    directions: Directions = 8
    """Random directions of an iteration, N. Each is tried both ways, for one whole episode each.
    Paper: Contrib. Standard: Contrib."""
    top_directions: Annotated[int, Field(strict=True, ge=0, le=MAX_DIRECTIONS)] = 0
    """Directions that count, b: those with the largest return of either way. 0, or more than there
    are: all. Paper: Contrib. Standard: Contrib."""
    step_size: PositiveFloat = 0.02
    """Alpha: how far the weights go along the mean of the directions, weighed by the differences of
    their returns over the standard deviation of these returns. Paper: Contrib. Standard: Contrib.
    """
    exploration_std: PositiveFloat = 0.05
    """Nu: standard deviation of the perturbation of each weight. Paper: Contrib. Standard: Contrib.
    """
    reward_offset: NonNegativeFloat = 0.0
    """Taken off the reward of each step, where staying alive is rewarded. Returns are reported
    without it. Paper: Mania. Standard: Mania."""
    observation_normalisation: StrictBool = True
    """Whether observations are normalised by their running mean and standard deviation: with it the
    algorithm is V2, without it V1. Paper: Mania. Standard: Mania."""
    observation_clip: PositiveFloat32 = 10.0
    """Bound of normalised observations. Paper: Contrib, by its VecNormalize. Standard: Contrib."""

    @property
    def num_counting(self) -> int:
        """Directions that count, b."""
        return min(self.top_directions or self.directions, self.directions)


PAPER = STANDARD = ArsHyperparameters()
"""ARS as SB3-Contrib begins with it, normalising observations as the paper's V2."""
