"""When a job ends."""

from typing import Annotated

from pydantic import Field

from shared.contracts.message import Message, Number, PositiveFloat, PositiveInt

MAX_ROUNDS = 1_000_000
"""A round a second for eleven days; more is a typo."""
RoundLimit = Annotated[PositiveInt, Field(le=MAX_ROUNDS)]
NO_CAP_USD = 1_000_000.0
"""Effectively no cap."""


class StopRule(Message):
    """When a job ends; the first condition that holds wins and is recorded."""

    max_rounds: RoundLimit = 50
    """Policy updates (section 8.2)."""
    target_return: Number | None = None
    """Stop once the mean evaluation return reaches this."""
    budget_usd: PositiveFloat = 5.0
    """Hard cap on the job's cost. Each round is priced at its worst case before launch. On one
    machine, which costs nothing, the default of `nitro train` is NO_CAP_USD.
    """
    max_env_steps: PositiveInt | None = None
    """No round begins after this many environment steps. It ends jobs of ARS and ES, whose rounds
    have an unknown number of steps."""
    max_wall_s: PositiveFloat | None = None
    """Most seconds from the first round to the start of the last round."""

    @property
    def ending_steps(self) -> int | None:
        """The steps that end the job long before its rounds; None if its rounds end it."""
        return self.max_env_steps if self.max_rounds == MAX_ROUNDS else None

    def of_rounds(self, number: int) -> str:
        """Return a number of rounds for people, `3/10`; `3` if steps end the job long before."""
        return f"{number}/{self.max_rounds}" if self.ending_steps is None else f"{number}"

    def share_done(self, rounds: int, env_steps: int) -> float:
        """Return how much of a job is done, from 0 to 1, by its rounds or by its steps."""
        steps = 0.0 if self.max_env_steps is None else env_steps / self.max_env_steps
        return min(1.0, max(rounds / self.max_rounds, steps))

    @property
    def is_capped(self) -> bool:
        """Whether the job has a real cap."""
        return self.budget_usd < NO_CAP_USD
