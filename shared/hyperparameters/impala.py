"""Hyper-parameters of IMPALA; `shared.hyperparameters.common` says what the sources are.

The paper runs no IMPALA, so its Table 1 gives no more than the discount. *RLlib* is the default of
RLlib's IMPALA. *Ours* was found by trying on Hopper-v4 (decision 020).
"""

from typing import ClassVar, Literal, Self

from pydantic import ValidationInfo, model_validator

from shared.contracts.message import NEW, NonNegativeFloat, PositiveFloat, PositiveInt
from shared.hyperparameters.common import CLEANRL, CLEANRL_IMAGES, Decay, OffPolicyHyperparameters


class ImpalaHyperparameters(OffPolicyHyperparameters):
    """IMPALA: the policy gradient with V-trace targets, every batch used once."""

    learning_rate: PositiveFloat = 5e-4
    """Adam's step size in the first round. Paper: RLlib. Standard: ours; for images CleanRL."""
    learning_rate_decay: Decay = "none"
    """Decay of the step size. `linear`: with trajectories of round k of `stop.max_rounds`, (1 - k /
    max_rounds) times the first.
    `cosine`: (1 + cos(pi * k / max_rounds)) / 2 times. Paper: RLlib. Standard: ours, none; for
    images linear, as CleanRL."""
    kl_target: NonNegativeFloat = 0.0
    """Mean KL divergence per update that the step size is adapted to. Above twice this value the
    step size is divided by 1.5, below half of it multiplied. It stays within 1/32 and 32 times
    `learning_rate`. KL is measured before each step, so a batch needs several steps. 0: the step
    size stays. Paper: not used. Standard: ours; not used for images."""
    loss_reduction: Literal["sum", "mean"] = "sum"
    """How a minibatch's loss is made of its samples' losses. Step size and gradient bound depend on
    it. Paper: RLlib. Standard: CleanRL."""
    advantage_normalisation: Literal["none", "batch", "minibatch"] = "none"
    """Samples over which advantages get mean 0 and deviation 1. Paper: RLlib. Standard: CleanRL."""
    entropy_coefficient: NonNegativeFloat = 0.01
    """Weight of the entropy bonus. Paper: RLlib. Standard: CleanRL."""
    value_coefficient: NonNegativeFloat = 0.5
    """Weight of the value loss, half the squared error. Paper: RLlib. Standard: CleanRL."""
    train_batch_size: PositiveInt = 500
    """Environment steps of a learner batch, in whole trajectories. Paper: RLlib. Standard: ours."""
    minibatch_size: PositiveInt = 65536
    """Samples per gradient step. Each is used once. Paper: the whole batch, as RLlib. Standard:
    CleanRL."""

    num_epochs: ClassVar[int] = 1
    buffer_batches: ClassVar[int] = 1
    buffer_uses: ClassVar[int] = 1
    """Every batch is used once, in the order it came, in one pass over its samples."""

    @model_validator(mode="after")
    def _steered_or_shrinking(self, info: ValidationInfo) -> Self:
        if self.kl_target and self.learning_rate_decay != "none":
            raise ValueError(
                "kl_target would undo learning_rate_decay: set one of them to 0 or 'none'"
            )
        if info.context == NEW and self.kl_target and self.minibatch_size >= self.train_batch_size:
            raise ValueError(
                "kl_target needs several steps per batch, as the divergence is measured before "
                "each: lower minibatch_size below train_batch_size, or set kl_target to 0"
            )
        return self


PAPER = ImpalaHyperparameters()
"""IMPALA in the form RLlib computes it, with the paper's networks."""

STANDARD = ImpalaHyperparameters(
    **CLEANRL,
    learning_rate=2e-4,
    kl_target=0.004,
    loss_reduction="mean",
    trace_lambda=0.95,
    train_batch_size=2048,
)
"""IMPALA with the network and the normalisation CleanRL tunes for PPO, and steps of its own."""

STANDARD_IMAGES = STANDARD.model_copy(
    update={
        **CLEANRL_IMAGES,
        "learning_rate_decay": "linear",
        "kl_target": 0.0,
        "train_batch_size": 512,
    }
)
"""IMPALA with what CleanRL's `ppo_atari.py` has for PPO."""
