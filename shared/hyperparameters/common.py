"""Hyper-parameters that algorithms have alike: the network, the normalisation, the discount.

A field's text says what it means, then where each preset's value comes from. *Table 1* and *section
8.1* are those of Yu et al., "Nitro: Boosting Distributed Reinforcement Learning with Serverless
Computing", PVLDB 18(1), 2024. *RLlib* is the default of RLlib's algorithm, which the paper's
experiments run on; it fills what Table 1 leaves open. *CleanRL* is `ppo_continuous_action.py` of
CleanRL, and `ppo_atari.py` for images. It follows Huang et al., "The 37 implementation details of
proximal policy optimization", ICLR blog track 2022. The standard presets take from it all that is
not an algorithm's own, so that the algorithms can be compared.

A model's defaults are the preset `paper`. In each algorithm's file `STANDARD` is the preset
`standard`, and `STANDARD_IMAGES` what it is where observations are images.
"""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StrictBool, ValidationInfo, model_validator

from shared.contracts.message import (
    NEW,
    Message,
    NonNegativeFloat,
    Number,
    PositiveFloat,
    PositiveFloat32,
    PositiveInt,
)
from shared.policy.blocks import Activation, ConvNetworkName
from shared.policy.recurrent import Recurrent

Decay = Literal["none", "linear", "cosine"]
"""How a value falls from its first in round 0 towards 0 behind the last round."""
ActionMapping = Literal["rescale", "clip"]
"""How a sampled continuous action reaches the environment's bounds."""
LogStd = Literal["state_dependent", "free"]
"""Where a Gaussian policy's log-standard deviations come from."""


class Hyperparameters(Message):
    """Fields of every algorithm: its policy's dense layers."""

    hidden_sizes: tuple[PositiveInt, ...] = (256, 256)
    """Widths of the layers of the policy and of the separate value network.
    Paper: section 8.1. Standard: CleanRL."""
    activation: Activation = "tanh"
    """Activation after each of these layers: `tanh`, `relu` or `elu`. Networks for images have
    ReLU. Paper: section 8.1. Standard: CleanRL."""
    layer_norm: StrictBool = False
    """Whether each of these layers is normalised before its activation, without gain and bias.
    Paper: not used. Standard: as paper."""

    distribution: ClassVar[str] = "gaussian"
    """Of continuous actions: a name of `shared.policy.head.KINDS` or `HEADS`."""

    @property
    def state_size(self) -> int:
        """Numbers of a recurrent policy's state; 0 of one that has none."""
        return 0


class GradientHyperparameters(Hyperparameters):
    """Further fields of algorithms that take gradient steps: a value function, Adam, a discount."""

    adam_epsilon: PositiveFloat = 1e-8
    """Added to the root of Adam's second moment. Paper: RLlib. Standard: CleanRL."""
    discount: Annotated[Number, Field(ge=0, le=1)] = 0.99
    """Discount factor gamma. Paper: Table 1. Standard: CleanRL."""
    value_hidden_sizes: tuple[PositiveInt, ...] = ()
    """`hidden_sizes` of the value network alone; empty: as `hidden_sizes`. Paper: section 8.1.
    Standard: CleanRL."""


class CommonHyperparameters(GradientHyperparameters):
    """Further fields of PPO, IMPACT and IMPALA, with equal defaults and sources."""

    entropy_decay: Decay = "none"
    """Decay of `entropy_coefficient`, in the forms of `learning_rate_decay`. Paper: RLlib.
    Standard: CleanRL."""
    image_network: ConvNetworkName = "paper_cnn"
    """Network for images, in place of those layers. Policy and value share all but one layer each.
    `paper_cnn`: filters 8x8, 4x4 and 11x11. `nature_cnn`: Mnih et al. 2015. With a side below 36
    pixels: filters 2x2. Of images beside other parts each has such a network, and those layers
    follow. Paper: section 8.1. Standard: CleanRL."""
    network: Annotated[str, Field(max_length=200)] = ""
    """Name of a network in place of those layers: of one's own, as `nitro.train` gives it, or a
    registered one. Empty: none. Paper: not used. Standard: as paper."""
    initialisation: Literal["normc", "orthogonal"] = "normc"
    """First weights. `normc`: rows of length 1, output layers 0.01. `orthogonal`: gain sqrt(2),
    policy output 0.01, value output 1. Biases are 0. Paper: RLlib. Standard: CleanRL."""
    log_std: LogStd = "state_dependent"
    """Log-standard deviation of Gaussian policies: `state_dependent`, a network output, or `free`,
    a vector that begins at 0. Paper: RLlib. Standard: CleanRL."""
    observation_normalisation: StrictBool = False
    """Whether observations are normalised by their running mean and standard deviation. Images
    never are. Paper: RLlib. Standard: CleanRL."""
    observation_clip: PositiveFloat32 = 10.0
    """Bound of normalised observations. Paper: not used. Standard: CleanRL."""
    reward_scaling: StrictBool = False
    """Whether rewards are divided by the running standard deviation of the discounted return.
    Paper: RLlib. Standard: CleanRL."""
    reward_clip: PositiveFloat32 = 10.0
    """Bound of a scaled reward. Paper: not used. Standard: CleanRL."""
    action_mapping: ActionMapping = "rescale"
    """How continuous actions reach the environment's bounds. `rescale` maps [-1, 1] onto them and
    clips. `clip` only clips. Paper: RLlib. Standard: CleanRL."""
    minibatch_size: PositiveInt = 64
    """Samples per gradient step."""
    recurrent: Literal["none", "lstm", "gru"] = "none"
    """Recurrent cells between `hidden_sizes` and the output layer, for what one observation does
    not show. Policy and value share all layers but those behind the cells. Paper: not used.
    Standard: as paper."""
    recurrent_units: PositiveInt = 64
    """Number of these cells. Paper: not used. Standard: as paper."""
    sequence_length: PositiveInt = 32
    """Most steps in a row that gradients of recurrent cells reach back. It is the largest number up
    to this that divides a batch's steps. Minibatches hold whole sequences. Paper: not used.
    Standard: as paper."""

    @property
    def state_size(self) -> int:
        """Numbers of a recurrent policy's state; 0 of one that has none."""
        if self.recurrent == "none":
            return 0
        return Recurrent(cell=self.recurrent, inputs=1, units=self.recurrent_units).state_size

    @model_validator(mode="after")
    def _remembers(self, info: ValidationInfo) -> Self:
        if self.recurrent == "none":
            return self
        if self.network:
            raise ValueError(
                f"recurrent ({self.recurrent}) is for Nitro's own layers: leave network "
                f"({self.network}) out"
            )
        if info.context == NEW and self.minibatch_size < self.sequence_length:
            raise ValueError(
                f"minibatch_size ({self.minibatch_size}) must hold a sequence of sequence_length "
                f"({self.sequence_length})"
            )
        if not self.hidden_sizes:
            raise ValueError(
                f"recurrent ({self.recurrent}) needs a layer before its cells: give hidden_sizes"
            )
        return self


class OffPolicyHyperparameters(CommonHyperparameters):
    """Further fields of IMPACT and IMPALA: V-trace and the bound of a gradient."""

    gradient_norm_max: NonNegativeFloat = 40.0
    """Bound of the gradient's norm, over all parameters. 0: no bound. Paper: RLlib. Standard:
    CleanRL."""
    trace_lambda: Annotated[Number, Field(ge=0, le=1)] = 1.0
    """Lambda of V-trace's trace weights. Paper: RLlib. Standard: CleanRL's of its advantages."""
    rho_clip: PositiveFloat32 = 1.0
    """Bound of V-trace's rho. Paper: RLlib. Standard: RLlib."""
    c_clip: PositiveFloat32 = 1.0
    """Bound of V-trace's c. Paper: RLlib. Standard: RLlib."""


CLEANRL: dict[str, Any] = {
    "adam_epsilon": 1e-5,
    "gradient_norm_max": 0.5,
    "advantage_normalisation": "minibatch",
    "entropy_coefficient": 0.0,
    "value_coefficient": 0.5,
    "minibatch_size": 64,
    "hidden_sizes": (64, 64),
    "image_network": "nature_cnn",
    "initialisation": "orthogonal",
    "log_std": "free",
    "observation_normalisation": True,
    "reward_scaling": True,
    "action_mapping": "clip",
}
"""Values that the standard presets of all algorithms share."""

CLEANRL_IMAGES: dict[str, Any] = {
    "learning_rate": 2.5e-4,
    "entropy_coefficient": 0.01,
    "minibatch_size": 256,
    "observation_normalisation": False,
    "reward_scaling": False,
}
"""Values that replace them where observations are images."""
