"""Hyper-parameters of PPO; `shared.hyperparameters.common` says what the sources are."""

from typing import Annotated, Literal

from pydantic import Field

from shared.contracts.message import (
    NonNegativeFloat,
    Number,
    PositiveFloat,
    PositiveFloat32,
    PositiveInt,
)
from shared.hyperparameters.common import CLEANRL, CLEANRL_IMAGES, CommonHyperparameters, Decay


class PpoHyperparameters(CommonHyperparameters):
    """PPO: clipped surrogate, with an adaptive KL penalty beside it or without."""

    learning_rate: PositiveFloat = 5e-5
    """Adam's step size in the first round. Paper: Table 1. Standard: CleanRL."""
    learning_rate_decay: Decay = "none"
    """Decay of the step size. `linear`: in round k of `stop.max_rounds`, (1 - k / max_rounds) times
    the first. Paper: RLlib. Standard: CleanRL."""
    gae_lambda: Annotated[Number, Field(ge=0, le=1)] = 1.0
    """Lambda of generalised advantage estimation. Paper: RLlib. Standard: CleanRL."""
    advantage_normalisation: Literal["batch", "minibatch"] = "batch"
    """Samples over which advantages get mean 0 and deviation 1. Paper: RLlib. Standard: CleanRL."""
    clip: PositiveFloat32 = 0.3
    """The probability ratio is clipped to 1 plus or minus this. Paper: Table 1. Standard:
    CleanRL."""
    kl_coefficient: NonNegativeFloat = 0.2
    """First weight of the KL penalty. 0: no penalty, ever. Paper: Table 1. Standard: CleanRL."""
    kl_target: PositiveFloat = 0.01
    """Mean KL per update that the weight of the penalty is adapted to. Not used where that is 0.
    Paper: Table 1. Standard: as paper."""
    kl_coefficient_max: PositiveFloat = 100.0
    """Upper bound of the adapted weight. RLlib has no bound. Paper: ours. Standard: as paper."""
    entropy_coefficient: NonNegativeFloat = 0.0
    """Weight of the entropy bonus. Paper: Table 1. Standard: CleanRL."""
    value_loss: Literal["bounded_error", "clipped_step"] = "bounded_error"
    """How `value_clip` limits one sample. `bounded_error`: min((V - target)^2, value_clip).
    `clipped_step`: half the larger of two squared errors, one with V and one with V kept within
    `value_clip` of its value before the update. Paper: RLlib. Standard: CleanRL."""
    value_coefficient: NonNegativeFloat = 1.0
    """Weight of the value loss. Paper: Table 1. Standard: CleanRL."""
    value_clip: PositiveFloat32 = 10.0
    """The limit of `value_loss`. Paper: RLlib. Standard: CleanRL."""
    gradient_norm_max: NonNegativeFloat = 0.0
    """Bound of the gradient's norm, over all parameters. 0: no bound. Paper: RLlib. Standard:
    CleanRL."""
    num_epochs: PositiveInt = 30
    """Passes over the round's samples per update. Paper: RLlib. Standard: CleanRL."""
    minibatch_size: PositiveInt = 128
    """Samples per gradient step. Paper: RLlib. Standard: CleanRL."""


PAPER = PpoHyperparameters()
"""The paper's settings: PPO in the form RLlib computes it."""

STANDARD = PpoHyperparameters(
    **CLEANRL,
    learning_rate=3e-4,
    learning_rate_decay="linear",
    gae_lambda=0.95,
    clip=0.2,
    kl_coefficient=0.0,
    value_loss="clipped_step",
    value_clip=0.2,
    num_epochs=10,
)
"""PPO as CleanRL tunes it for continuous control; meant for rounds of 2,048 steps."""

STANDARD_IMAGES = STANDARD.model_copy(
    update={**CLEANRL_IMAGES, "clip": 0.1, "value_clip": 0.1, "num_epochs": 4}
)
"""PPO as CleanRL's `ppo_atari.py` (and Stable-Baselines3's zoo) has it; meant for rounds of 1,024
steps."""
