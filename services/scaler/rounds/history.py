"""What came before a round: which round ends with its request, and whether the job has to."""

from dataclasses import dataclass

from services.scaler.rounds.order import num_stops
from services.scaler.store.base import RoundEntry, Store
from shared.contracts.jobs import StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsBefore:
    """What a new plan has to know of the rounds before it."""

    round_index: int
    """The round asked for."""
    open_rounds: int
    """Rounds the job keeps open at a time."""
    last: RoundEntry | None
    """The newest round before it; itself, when it is launched again."""
    near: list[RoundEntry]
    """What `rounds_near` returned."""
    reopened: bool
    """Whether it is launched again."""

    @property
    def reopening(self) -> RoundEntry | None:
        """The round, when it is launched again."""
        return self.last if self.reopened else None

    @property
    def ended(self) -> RoundEntry | None:
        """The round that is over with this request, if there is one."""
        if self.open_rounds == 1:
            return None if self.reopened else self.last
        return next((e for e in self.near if e.round == self.through), None)

    @property
    def through(self) -> int | None:
        """Newest round that is over; None where none is open beside the one asked for."""
        return None if self.open_rounds == 1 else self.round_index - self.open_rounds

    @property
    def num_stops(self) -> int:
        """How many plans just before this one say that the job ends."""
        return num_stops(None, self.near, before=self.round_index)

    @property
    def stop(self) -> tuple[StopReason, str] | None:
        """Why the job ends, if an earlier plan said so."""
        if not self.num_stops:
            return None
        plan = next(e for e in self.near if e.round == self.round_index - 1).last.plan
        return None if plan.stop is None else (plan.stop, plan.reason)


def rounds_near(store: Store, job_id: str, round_index: int, open_rounds: int) -> list[RoundEntry]:
    """Return a round and the `open_rounds` before it, as far as there are any, in order.

    Where one round is open at a time the newest is all that matters, and none are fetched.
    """
    if open_rounds == 1:
        return []
    first = max(0, round_index - open_rounds)
    return store.rounds(job_id, first=first, limit=round_index + 1 - first)
