"""How long episodes are, and which are played to evaluate a policy."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from shared.contracts.message import Count, Message, PositiveInt


class EpisodeRule(Message):
    """How long training episodes are; evaluations have nothing to do with it."""

    horizon: PositiveInt | Literal["limit", "fragment"] | None = None
    """Steps after which a training episode is cut; the value function estimates the rest. `limit`:
    the environment decides. `fragment`: every fragment begins with a reset, as in the paper. With a
    number or `limit`, an episode goes on in a later round, in any actor. Unset: as in the preset,
    see `nitro presets`."""

    @field_validator("horizon", mode="before")
    @classmethod
    def _one_answer(cls, horizon: object) -> object:
        # Otherwise each kind that it could be would have a complaint of its own.
        is_steps = type(horizon) is int and horizon >= 1
        if not (is_steps or horizon in (None, "limit", "fragment")):
            raise ValueError(
                f"must be limit, fragment or a number of steps from 1, got {horizon!r:.80}"
            )
        return horizon

    @property
    def go_on(self) -> bool:
        """Whether episodes are to go on in later rounds, where the environment allows it."""
        return self.horizon not in (None, "fragment")

    @property
    def cut_at(self) -> int | None:
        """Steps after a reset at which an episode is cut, where that is a number."""
        return self.horizon if isinstance(self.horizon, int) else None


class EvaluationRule(Message):
    """Episodes with the deterministic policy, apart from training."""

    every_rounds: Count = 5
    """Evaluate in rounds 0, n, 2n, ... and after the last update. 0 turns evaluation off."""
    episodes: Annotated[int, Field(strict=True, ge=1, le=1000)] = 10
    """Episodes per evaluation, one actor each."""
