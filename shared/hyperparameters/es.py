"""Hyper-parameters of ES; `shared.hyperparameters.common` says what the sources are.

Nitro's paper runs no ES. *Salimans* is Salimans, Ho, Chen, Sidor and Sutskever, "Evolution
strategies as a scalable alternative to reinforcement learning", arXiv 1703.03864. *OpenAI* is the
configuration that its authors published for Humanoid (`evolution-strategies-starter`). *Kingma* is
Adam's paper. What differs by task is in `nitro.spec.starting_job`.
"""

from typing import Annotated

from pydantic import Field, StrictBool

from shared.contracts.message import (
    NonNegativeFloat,
    Number,
    PositiveFloat,
    PositiveFloat32,
    PositiveInt,
)
from shared.hyperparameters.search import Directions, SearchHyperparameters
from shared.policy.blocks import Activation

_Decay = Annotated[Number, Field(ge=0, lt=1)]


class EsHyperparameters(SearchHyperparameters):
    """Evolution strategies: ranks of whole episodes of perturbed policies, and Adam."""

    hidden_sizes: tuple[PositiveInt, ...] = (64, 64)
    """Widths of the policy's hidden layers. Paper: Salimans, section 4.1. Standard: Salimans,
    section 4.1."""
    activation: Activation = "tanh"
    """Activation after each hidden layer: `tanh`, `relu` or `elu`. Paper: Salimans, section 4.1.
    Standard: Salimans, section 4.1."""
    directions: Directions = 40
    """Random directions of an iteration. Each is tried both ways, for one whole episode each.
    Paper: as ARS for Walker2d. Standard: as ARS for Walker2d."""
    learning_rate: PositiveFloat = 0.01
    """Step size of Adam. Paper: OpenAI. Standard: OpenAI."""
    adam_beta1: _Decay = 0.9
    """Decay of Adam's first moment. Paper: Kingma. Standard: Kingma."""
    adam_beta2: _Decay = 0.999
    """Decay of Adam's second moment. Paper: Kingma. Standard: Kingma."""
    adam_epsilon: PositiveFloat = 1e-8
    """Added to the root of Adam's second moment. Paper: Kingma. Standard: Kingma."""
    weight_decay: NonNegativeFloat = 0.005
    """Times the weights, it is taken off the gradient before Adam. Paper: OpenAI. Standard: OpenAI.
    """
    exploration_std: PositiveFloat = 0.02
    """Standard deviation of the perturbation of each weight. Paper: OpenAI. Standard: OpenAI."""
    observation_normalisation: StrictBool = True
    """Whether observations are normalised by their running mean and standard deviation. Paper:
    OpenAI. Standard: OpenAI."""
    observation_clip: PositiveFloat32 = 5.0
    """Bound of normalised observations. Paper: OpenAI. Standard: OpenAI."""


PAPER = STANDARD = EsHyperparameters()
"""ES as its authors published it, with fewer directions: theirs has 5,000."""
