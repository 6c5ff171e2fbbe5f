"""Hyper-parameters of IMPACT; `shared.hyperparameters.common` says what the sources are.

*RLlib* is the default of RLlib's APPO. *IMPACT* is Luo et al., "IMPACT: Importance weighted
asynchronous architectures with clipped target networks", ICLR 2020.
"""

from typing import Annotated, Literal

from pydantic import Field

from shared.contracts.message import NonNegativeFloat, PositiveFloat, PositiveFloat32, PositiveInt
from shared.hyperparameters.common import CLEANRL, CLEANRL_IMAGES, Decay, OffPolicyHyperparameters


class ImpactHyperparameters(OffPolicyHyperparameters):
    """IMPACT: a clipped surrogate around a target policy, V-trace, and batches used again."""

    learning_rate: PositiveFloat = 5e-4
    """Adam's step size in the first round. Paper: RLlib. Standard: CleanRL."""
    learning_rate_decay: Decay = "none"
    """Decay of the step size. `linear`: with trajectories of round k of `stop.max_rounds`, (1 - k /
    max_rounds) times the first.
    `cosine`: (1 + cos(pi * k / max_rounds)) / 2 times. Paper: RLlib. Standard: CleanRL."""
    advantage_normalisation: Literal["none", "batch", "minibatch"] = "none"
    """Samples over which advantages get mean 0 and deviation 1. Paper: RLlib. Standard: CleanRL."""
    clip: PositiveFloat32 = 0.4
    """The ratio to the target policy is clipped to 1 plus or minus this. Paper: Table 1. Standard:
    CleanRL."""
    importance_clip: PositiveFloat32 = 2.0
    """Bound of the behaviour policy's probability over the target policy's. Paper: RLlib.
    Standard: RLlib."""
    kl_coefficient: NonNegativeFloat = 1.0
    """First weight of the KL penalty from the target policy. 0: no penalty, ever. Paper: Table 1.
    Standard: none, as CleanRL."""
    kl_target: PositiveFloat = 0.01
    """Mean KL from the target policy that the weight of the penalty is adapted to, at each target
    update. Not used where that is 0. Paper: Table 1. Standard: as paper."""
    kl_coefficient_max: PositiveFloat = 100.0
    """Upper bound of the adapted weight. RLlib has no bound. Paper: ours. Standard: as paper."""
    entropy_coefficient: NonNegativeFloat = 0.01
    """Weight of the entropy bonus. Paper: RLlib. Standard: CleanRL."""
    value_coefficient: NonNegativeFloat = 1.0
    """Weight of the value loss, half the squared error. Paper: Table 1. Standard: CleanRL."""
    train_batch_size: PositiveInt = 4096
    """Environment steps of a learner batch, in whole trajectories. Paper: Table 1 for MuJoCo, and
    for images, where Table 1 has 256. Standard: CleanRL's round."""
    buffer_batches: Annotated[int, Field(strict=True, ge=1, le=1024)] = 4
    """Learner batches that the circular buffer keeps (N). Paper: RLlib. Standard: RLlib."""
    buffer_uses: PositiveInt = 2
    """Most times that a batch is used (K). Paper: RLlib. Standard: once, as a second use brought no
    return on Hopper-v4 (decision 013)."""
    target_update_frequency: PositiveFloat = 1.0
    """The target policy becomes the present one every N * K times this many learner batches, at
    least one. Paper: Table 1. Standard: every batch; IMPACT found 1/8 to 4 to work."""
    num_epochs: PositiveInt = 1
    """Passes over a batch each time it is used. Paper: RLlib. Standard: CleanRL."""
    minibatch_size: PositiveInt = 4096
    """Samples per gradient step. Paper: the whole batch, as RLlib. Standard: CleanRL."""

    @property
    def target_update_batches(self) -> int:
        """Learner batches from one update of the target policy to the next."""
        batches = self.target_update_frequency * self.buffer_batches * self.buffer_uses
        return max(1, round(batches))


PAPER = ImpactHyperparameters()
"""The paper's settings: IMPACT in the form RLlib computes it."""

STANDARD = ImpactHyperparameters(
    **CLEANRL,
    learning_rate=3e-4,
    learning_rate_decay="linear",
    trace_lambda=0.95,
    clip=0.2,
    kl_coefficient=0.0,
    train_batch_size=2048,
    buffer_uses=1,
    target_update_frequency=0.25,
    num_epochs=10,
)
"""IMPACT with the network, the normalisation and the optimiser CleanRL tunes for PPO."""

STANDARD_IMAGES = STANDARD.model_copy(
    update={**CLEANRL_IMAGES, "clip": 0.1, "train_batch_size": 1024, "num_epochs": 4}
)
"""IMPACT with what CleanRL's `ppo_atari.py` has for PPO."""
