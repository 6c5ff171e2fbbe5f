"""The length of training episodes, and the evaluation episodes."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from shared.contracts.message import Count, Message, Number, PositiveInt

AUTO_REPLAY_SHARE = 0.8
"""Four repeated steps for each new one: a round's actors then reach as far into an episode as a
single actor with all of the round's steps.
"""


class EpisodeRule(Message):
    """The length of training episodes; it does not affect evaluations."""

    horizon: PositiveInt | Literal["limit", "fragment"] | None = None
    """Steps after which a training episode is cut; the value function estimates the rest. `limit`:
    the environment decides. `fragment`: every fragment begins with a reset, as in the paper. With a
    number or `limit`, episodes continue in later rounds, on any actor. Unset: as in the preset, see
    `nitro presets`.
    """

    replay: Literal["auto", "off"] | Annotated[Number, Field(gt=0, lt=1)] = "auto"
    """If an environment's state cannot be saved, actors repeat an episode's actions from its seed
    before they continue it. A number is the largest share of repeated steps. `auto`: 0.8. `off`:
    never.
    """
    resize: bool = False
    """If episodes cannot continue, reduce the number of actors so that each plays whole episodes.
    Needs `samples_per_round`. `nitro train` sets it if you give neither actors nor steps.
    """

    @field_validator("horizon", mode="before")
    @classmethod
    def _one_answer(cls, horizon: object) -> object:
        # Otherwise each member of the union would add an error.
        is_steps = type(horizon) is int and horizon >= 1
        if not (is_steps or horizon in (None, "limit", "fragment")):
            raise ValueError(
                f"must be limit, fragment or a number of steps from 1, got {horizon!r:.80}"
            )
        return horizon

    @property
    def go_on(self) -> bool:
        """Whether episodes should continue in later rounds, if the environment allows it."""
        return self.horizon not in (None, "fragment")

    @property
    def cut_at(self) -> int | None:
        """Steps after which an episode is cut, if a number."""
        return self.horizon if isinstance(self.horizon, int) else None

    @property
    def replay_share(self) -> float:
        """Largest share of an actor's steps that repeat earlier ones; 0 for none."""
        if self.replay == "off":
            return 0.0
        return AUTO_REPLAY_SHARE if self.replay == "auto" else self.replay


class EvaluationRule(Message):
    """Episodes with the deterministic policy, apart from training."""

    every_rounds: Count = 5
    """Evaluate in rounds 0, n, 2n, ... and after the last update. 0 turns evaluation off."""
    episodes: Annotated[int, Field(strict=True, ge=1, le=1000)] = 10
    """Episodes per evaluation, one actor each."""
