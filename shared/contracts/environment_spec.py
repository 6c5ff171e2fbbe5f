"""The actor image's description of an environment."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, FiniteFloat, model_validator

from shared.contracts.message import Count, Message, NonNegativeFloat, PositiveInt

Repeats = Literal["reused", "rebuilt", "never"]
"""`reused`: repeats episodes in any environment, even a used one. `rebuilt`: only in a newly built
environment. `never`: not deterministic.
"""


class ObservationSpec(Message):
    """One observation: a box of numbers."""

    shape: tuple[PositiveInt, ...]
    dtype: Literal["float32", "uint8"]
    """Type on the wire; float64 is cast to float32."""
    frame_stack: PositiveInt | None = None
    """Number of stacked frames if the first axis is a sliding window of frames. Each frame then
    travels only once.
    """
    images: tuple[tuple[PositiveInt, PositiveInt, PositiveInt], ...] = ()
    """Shapes (channels, height, width) of the images with which a flat observation of parts begins.
    """
    parts: tuple[tuple[str, Count], ...] = ()
    """Names and sizes of the parts in a row, in order; empty if the observation is a box."""
    action_mask: bool = False
    """Whether its last numbers are a mask of allowed actions: 1 or 0 for each choice."""

    @property
    def is_image(self) -> bool:
        """Whether it is an image (channels, height, width) rather than a vector."""
        return self.dtype == "uint8" and len(self.shape) == 3

    @property
    def has_images(self) -> bool:
        """Whether it is an image, or has images among its parts."""
        return self.is_image or bool(self.images)

    @property
    def num_numbers(self) -> int:
        """The number of its last numbers that are no pixels."""
        pixels = sum(math.prod(image) for image in self.images)
        return 0 if self.is_image else math.prod(self.shape) - pixels

    @model_validator(mode="after")
    def _images_fit(self) -> Self:
        if self.num_numbers < 0:
            raise ValueError(f"images {self.images} have more numbers than {self.shape}")
        return self


class ContinuousActionSpec(Message):
    """A bounded box of real actions."""

    kind: Literal["continuous"] = "continuous"
    low: tuple[FiniteFloat, ...]
    high: tuple[FiniteFloat, ...]


class DiscreteActionSpec(Message):
    """One of `n` actions; policies number them from 0."""

    kind: Literal["discrete"] = "discrete"
    n: PositiveInt
    start: int = 0
    """The environment's number of the first action."""


class MultiDiscreteActionSpec(Message):
    """Several choices at once: one of `num_choices[i]` for every i; policies number from 0."""

    kind: Literal["multi_discrete"] = "multi_discrete"
    num_choices: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    starts: tuple[int, ...] = ()
    """The environment's number of each choice's first value; empty if all are 0."""

    @model_validator(mode="after")
    def _one_start_a_choice(self) -> Self:
        if self.starts and len(self.starts) != len(self.num_choices):
            raise ValueError(f"starts are {len(self.starts)}, choices {len(self.num_choices)}")
        return self


ActionSpec = Annotated[
    ContinuousActionSpec | DiscreteActionSpec | MultiDiscreteActionSpec,
    Field(discriminator="kind"),
]


class EnvironmentSpec(Message):
    """The actor image's description of an environment, complete for the learner."""

    env_id: str
    observation: ObservationSpec
    action: ActionSpec
    max_episode_steps: PositiveInt | None
    episodes_are_lives: bool = False
    """Whether an episode may end before the game; reported returns are those of whole games."""
    agents: PositiveInt = 1
    """Agents that act at once, each an environment of its own."""
    preprocessing: tuple[str, ...] = ()
    """The layers between the simulator and the policy, in order, one line each."""
    versions: dict[str, str]
    """Library name to version, for the run's record."""
    notes: tuple[str, ...] = ()
    """Warnings of the environment's libraries at its construction."""
    variables: dict[str, str | None] = {}
    """Environment variables that the simulator read in Python, with their values; None: not set.
    Secrets, and machine-specific variables such as HOME, are left out.
    """
    keeps_state: bool = False
    """Whether another actor can continue an episode; otherwise a note has the reason."""
    snapshot_bytes: Count = 0
    """Size of a snapshot after the first step; 0 if unknown."""
    step_s: NonNegativeFloat = 0.0
    """Measured seconds of a step; 0 if below 0.001."""
    repeats: Repeats | None = None
    """In which environments a seed and actions repeat an episode. None if it was not tested,
    because state can be saved.
    """
    draws_globally: bool = False
    """Whether it uses the global random generators of Python or NumPy, which all environments of a
    process share.
    """

    @property
    def mask_size(self) -> int:
        """The number of an observation's last numbers that are a mask of actions."""
        if not self.observation.action_mask or isinstance(self.action, ContinuousActionSpec):
            return 0
        action = self.action
        return action.n if isinstance(action, DiscreteActionSpec) else sum(action.num_choices)
