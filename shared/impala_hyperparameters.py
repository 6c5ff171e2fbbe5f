"""Hyper-parameters of IMPALA, their meaning and where every value comes from.

A field's text says what it means, then where each preset's value comes from. *Table 1* and *section
8.1* are those of Yu et al., "Nitro: Boosting Distributed Reinforcement Learning with Serverless
Computing", PVLDB 18(1), 2024; the paper runs no IMPALA, so Table 1 gives no more than the discount.
*RLlib* is the default of RLlib's IMPALA. *CleanRL* is its `ppo_continuous_action.py`: the standard
preset takes from it most of what is not IMPALA's own, so that the algorithms can be compared.
*Ours* was found by trying on Hopper-v4 (decision 020).

The defaults are the preset `paper`; `STANDARD` is the preset `standard`.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, StrictBool, ValidationInfo, model_validator

from shared.conv_layers import ConvNetworkName
from shared.message import (
    NEW,
    Message,
    NonNegativeFloat,
    Number,
    PositiveFloat,
    PositiveFloat32,
    PositiveInt,
)
from shared.ppo_hyperparameters import ActionMapping


class ImpalaHyperparameters(Message):
    """IMPALA: the policy gradient with V-trace targets, every batch used once."""

    learning_rate: PositiveFloat = 5e-4
    """Adam step size, in the first round. Paper: RLlib. Standard: ours; for images CleanRL."""
    learning_rate_decay: Literal["none", "linear"] = "none"
    """Whether the step size shrinks: with trajectories of round k of `stop.max_rounds` it is
    (1 - k / max_rounds) of the first round's. Paper: RLlib. Standard: ours, none; for images
    linear, as CleanRL."""
    kl_target: NonNegativeFloat = 0.0
    """Mean KL divergence from the policy before an update, along it, that the step size is steered
    to: after twice as much it is divided by 1.5, after less than half multiplied, within 1/32 and
    32 times `learning_rate`. It is measured before each step, so a batch needs several. 0 leaves
    the step size as it is. Paper: not used. Standard: ours; not used for images."""
    adam_epsilon: PositiveFloat = 1e-8
    """Added to the root of Adam's second moment. Paper: RLlib. Standard: CleanRL."""
    gradient_norm_max: NonNegativeFloat = 40.0
    """Longer gradients are cut to this length, over all parameters; 0 leaves them as they are.
    Paper: RLlib. Standard: CleanRL."""
    loss_reduction: Literal["sum", "mean"] = "sum"
    """How samples' losses make a minibatch's; step size and gradient bound belong to it.
    Paper: RLlib. Standard: CleanRL."""
    discount: Annotated[Number, Field(ge=0, le=1)] = 0.99
    """Discount factor gamma. Paper: Table 1. Standard: CleanRL."""
    trace_lambda: Annotated[Number, Field(ge=0, le=1)] = 1.0
    """Lambda of V-trace's trace weights. Paper: RLlib. Standard: CleanRL's of its advantages."""
    rho_clip: PositiveFloat32 = 1.0
    """Bound of V-trace's rho. Paper: RLlib. Standard: RLlib."""
    c_clip: PositiveFloat32 = 1.0
    """Bound of V-trace's c. Paper: RLlib. Standard: RLlib."""
    advantage_normalisation: Literal["none", "batch", "minibatch"] = "none"
    """Over which samples advantages get mean 0 and deviation 1. Paper: RLlib. Standard: CleanRL."""
    entropy_coefficient: NonNegativeFloat = 0.01
    """Weight of the entropy bonus. Paper: RLlib. Standard: CleanRL."""
    value_coefficient: NonNegativeFloat = 0.5
    """Weight of the value loss, half the squared error. Paper: RLlib. Standard: CleanRL."""
    train_batch_size: PositiveInt = 500
    """Environment steps of a learner batch, in whole trajectories. Paper: RLlib. Standard: ours."""
    minibatch_size: PositiveInt = 65536
    """Samples per gradient step; each is used once. Paper: the whole batch, as RLlib.
    Standard: CleanRL."""
    hidden_sizes: tuple[PositiveInt, ...] = (256, 256)
    """Widths of the tanh layers of the policy and of the separate value network.
    Paper: section 8.1. Standard: CleanRL."""
    image_network: ConvNetworkName = "paper_cnn"
    """Network for images, in place of those layers; policy and value share it but for one layer
    each. `paper_cnn`: filters 8x8, 4x4 and 11x11. `nature_cnn`: Mnih et al. 2015.
    Paper: section 8.1. Standard: CleanRL."""
    initialisation: Literal["normc", "orthogonal"] = "normc"
    """First weights: `normc` rows of length 1 (output layers 0.01); `orthogonal` with gain sqrt(2)
    (policy output 0.01, value output 1). Biases are 0. Paper: RLlib. Standard: CleanRL."""
    log_std: Literal["state_dependent", "free"] = "state_dependent"
    """Gaussian policies: log-standard deviation as a network output or a free vector from 0.
    Paper: RLlib. Standard: CleanRL."""
    observation_normalisation: StrictBool = False
    """Whether policy and value see observations less their running mean, over their running
    standard deviation; images never. Paper: RLlib. Standard: CleanRL."""
    observation_clip: PositiveFloat32 = 10.0
    """Bound of a normalised observation's numbers. Paper: not used. Standard: CleanRL."""
    reward_scaling: StrictBool = False
    """Whether rewards are divided by the running standard deviation of the discounted return.
    Paper: RLlib. Standard: CleanRL."""
    reward_clip: PositiveFloat32 = 10.0
    """Bound of a scaled reward. Paper: not used. Standard: CleanRL."""
    action_mapping: ActionMapping = "rescale"
    """Continuous actions on their way into the environment: `rescale` maps [-1, 1] onto its bounds
    and clips, `clip` only clips. Paper: RLlib. Standard: CleanRL."""

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
    learning_rate=2e-4,
    learning_rate_decay="none",
    kl_target=0.004,
    adam_epsilon=1e-5,
    gradient_norm_max=0.5,
    loss_reduction="mean",
    trace_lambda=0.95,
    advantage_normalisation="minibatch",
    entropy_coefficient=0.0,
    train_batch_size=2048,
    minibatch_size=64,
    hidden_sizes=(64, 64),
    image_network="nature_cnn",
    initialisation="orthogonal",
    log_std="free",
    observation_normalisation=True,
    reward_scaling=True,
    action_mapping="clip",
)
"""IMPALA with the network and the normalisation CleanRL tunes for PPO, and steps of its own."""

STANDARD_IMAGES = STANDARD.model_copy(
    update={
        "learning_rate": 2.5e-4,
        "learning_rate_decay": "linear",
        "kl_target": 0.0,
        "entropy_coefficient": 0.01,
        "train_batch_size": 512,
        "minibatch_size": 256,
        "observation_normalisation": False,
        "reward_scaling": False,
    }
)
"""IMPALA with what CleanRL's `ppo_atari.py` has for PPO."""
