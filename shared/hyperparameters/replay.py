"""Hyper-parameters of algorithms that learn from single steps, drawn again and again from a replay.

The values are SAC's, and `shared.hyperparameters.sac` says what their sources are. An algorithm
with others has fields of its own in their place.
"""

from typing import Annotated, ClassVar

from pydantic import Field

from shared.contracts.message import Number, PositiveFloat, PositiveInt
from shared.hyperparameters.common import ActionMapping, GradientHyperparameters
from shared.policy.blocks import Activation

_Share = Annotated[Number, Field(gt=0, le=1)]


class ReplayHyperparameters(GradientHyperparameters):
    """Critics of an observation and an action, a policy within [-1, 1], and the replay."""

    activation: Activation = "relu"
    """Activation after each hidden layer of the policy and of both critics: `tanh`, `relu` or
    `elu`. Paper: Haarnoja. Standard: Haarnoja."""
    learning_rate: PositiveFloat = 3e-4
    """Adam's step size, the same for all that is learned. Paper: Haarnoja. Standard: Haarnoja."""
    adam_beta1: Annotated[Number, Field(ge=0, lt=1)] = 0.9
    """Decay of Adam's running mean of gradients. Paper: Haarnoja. Standard: Haarnoja."""
    policy_delay: PositiveInt = 1
    """Gradient steps of the critics for each one of all else that is learned. Paper: Haarnoja.
    Standard: Haarnoja."""
    minibatch_size: PositiveInt = 256
    """Steps drawn from the replay for a gradient step. Paper: Haarnoja. Standard: Haarnoja."""
    updates_per_step: PositiveFloat = 1.0
    """Gradient steps for each environment step behind `learning_starts`, however many actors there
    are. Paper: Haarnoja. Standard: Haarnoja."""
    learning_starts: Annotated[int, Field(strict=True, ge=0)] = 10_000
    """Environment steps with uniform random actions, before the first gradient step. Paper:
    Haarnoja's code. Standard: CleanRL."""
    replay_capacity: Annotated[int, Field(strict=True, ge=1, le=10_000_000)] = 1_000_000
    """Newest steps that are kept to draw from. Paper: Haarnoja. Standard: Haarnoja."""
    replay_mb: PositiveInt = 4096
    """Most memory of the replay, in MB; where its steps are large, fewer are kept. Paper: ours.
    Standard: ours."""
    target_rate: _Share = 0.005
    """Part of the way that the target critics go towards the critics after each gradient step.
    Paper: Haarnoja. Standard: Haarnoja."""

    distribution: ClassVar[str] = "squashed_gaussian"
    action_mapping: ClassVar[ActionMapping] = "rescale"
    """Actions are squashed into [-1, 1], which is mapped onto the environment's bounds."""

    def kept_steps(self, numbers_per_step: int) -> int:
        """Return how many steps the replay keeps, each of so many numbers of four bytes."""
        return max(1, min(self.replay_capacity, self.replay_mb * 10**6 // (4 * numbers_per_step)))
