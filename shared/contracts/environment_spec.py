"""What an environment looks like, as the actor image describes it."""

from typing import Annotated, Literal, Self

from pydantic import Field, FiniteFloat, model_validator

from shared.contracts.message import Count, Message, NonNegativeFloat, PositiveInt

Repeats = Literal["reused", "rebuilt", "never"]
"""`reused`: in any environment of the kind, whatever it was used for before. `rebuilt`: only in one
that was built for the episode. `never`: it is not deterministic."""


class ObservationSpec(Message):
    """One observation: a box of numbers."""

    shape: tuple[PositiveInt, ...]
    dtype: Literal["float32", "uint8"]
    """Type on the wire; environments that give float64 are cast to float32."""
    frame_stack: PositiveInt | None = None
    """If the first axis counts successive frames, each observation being the one before it with one
    frame more at the end and one less at the start: how many. Frames then travel once each."""
    action_mask: bool = False
    """Whether its last numbers, one for each choice of an action, say which are allowed: 1 or 0."""

    @property
    def is_image(self) -> bool:
        """Whether it is an image (channels, height, width) rather than a vector."""
        return self.dtype == "uint8" and len(self.shape) == 3


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
    """The environment's own number of the first one."""


class MultiDiscreteActionSpec(Message):
    """Several choices at once: one of `num_choices[i]` for every i; policies number from 0."""

    kind: Literal["multi_discrete"] = "multi_discrete"
    num_choices: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    starts: tuple[int, ...] = ()
    """The environment's own number of each choice's first; empty where all are 0."""

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
    """What the actor image says about an environment: all the learner ever needs to know of it."""

    env_id: str
    observation: ObservationSpec
    action: ActionSpec
    max_episode_steps: PositiveInt | None
    episodes_are_lives: bool = False
    """Whether an episode may end while the game goes on; the returns reported are whole games'."""
    preprocessing: tuple[str, ...] = ()
    """What lies between the simulator and the policy, in order, one line each."""
    versions: dict[str, str]
    """Library name to version, for the run's record."""
    notes: tuple[str, ...] = ()
    """What the environment's libraries warned about when it was built."""
    variables: dict[str, str | None] = {}
    """Variables of the process that the simulator read in Python, and their values; None: not set.
    Secrets, and what differs from place to place anyway, such as HOME, are left out."""
    keeps_state: bool = False
    """Whether an episode can be left by one actor and taken up by another; else a note says why."""
    snapshot_bytes: Count = 0
    """Size of an episode that is left after its first step; 0 where that is not known."""
    step_s: NonNegativeFloat = 0.0
    """Seconds of a step when the environment was described; 0 where that is below 0.02."""
    repeats: Repeats | None = None
    """In which environments a seed and the same actions give the same episode again. None where
    nobody tried, as state can be kept."""
    draws_globally: bool = False
    """Whether it draws from the global generators of Python or NumPy, which all environments of a
    process share."""

    @property
    def mask_size(self) -> int:
        """How many of an observation's last numbers are a mask of actions."""
        if not self.observation.action_mask or isinstance(self.action, ContinuousActionSpec):
            return 0
        action = self.action
        return action.n if isinstance(action, DiscreteActionSpec) else sum(action.num_choices)
