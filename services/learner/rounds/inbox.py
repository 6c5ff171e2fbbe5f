"""The results of one mode in a round: those read, those refused, and failures."""

import logging
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from services.learner.rounds.results import EnvironmentFailedError, GivenUpError
from shared.cache.arrivals import Arrival, FailureKind, Mode
from shared.cache.client import TrajectoryCache
from shared.contracts.rounds import RoundPlan
from shared.trajectory.codec import CodecError
from shared.trajectory.trajectory import Episode, Trajectory, TrajectoryError

_LOG = logging.getLogger(__name__)
R_co = TypeVar("R_co", bound=Trajectory | Episode, covariant=True)


class Inbox(Generic[R_co]):
    """Reads the results of one mode, by index."""

    def __init__(
        self,
        cache: TrajectoryCache,
        plan: RoundPlan,
        mode: Mode,
        read: Callable[[bytes, RoundPlan, int], R_co],
        *,
        asked: range,
        taken: Collection[int] = (),
        retried: bool = False,
    ) -> None:
        """Begin without results.

        Args:
            cache: Holds the results.
            plan: The round.
            mode: Of the results.
            read: Returns an actor's result, of untrusted bytes, or raises.
            asked: Indices of the results that are waited for.
            taken: Of these, those that were used before.
            retried: Whether the caller asks again for those that failed.
        """
        self._cache = cache
        self._plan = plan
        self._place = plan.job_id, plan.round
        self.mode: Mode = mode
        self._read = read
        self.asked = asked
        self.taken = frozenset(taken)
        self._retried = retried
        self.results: dict[int, R_co] = {}
        self.failed: dict[int, Arrival] = {}
        self.refused: set[int] = set()
        """Stored results that could not be used; the cache accepts no others in their place."""
        self.counted_out: set[int] = set()
        """Results that are waited for no longer."""
        self.is_closed = False
        """Whether results that arrive from now on are late. Failures still count."""

    @property
    def in_order(self) -> tuple[R_co, ...]:
        """The results, in order of index."""
        return tuple(self.results[index] for index in sorted(self.results))

    def is_answered(self, index: int) -> bool:
        """Whether there is nothing left to wait for."""
        return (
            index in self.results
            or index in self.taken
            or index in self.counted_out
            or (index in self.failed and not self._retried)
        )

    def ignores(self, arrival: Arrival) -> bool:
        """Whether an arrival is answered, refused, late or was never requested."""
        index = arrival.actor_index
        return (
            index not in self.asked
            or (self.is_closed and arrival.failed is None)
            or index in self.results
            or index in self.taken
            or index in self.refused
        )

    def load(self, indices: Collection[int], *, may_miss: bool = False) -> None:
        """Read stored results; with `may_miss` some may not have been stored yet."""
        payloads = self._cache.load_results(*self._place, mode=self.mode, actor_indices=[*indices])
        for index, payload in zip(indices, payloads, strict=True):
            if payload is not None:
                self._accept(index, payload)
            elif not may_miss:
                # The actor delivered it: a restarted cache must not change what is learned.
                self._refuse(index, "the cache lost its result", kind="vanished")

    def drop(self, indices: Collection[int]) -> None:
        """Let the cache accept other results in place of these."""
        self._cache.drop_results(*self._place, mode=self.mode, actor_indices=[*indices])
        self.refused.difference_update(indices)

    def of_kind(self, *kinds: FailureKind) -> list[int]:
        """Return the indices of failures of some kinds, in order."""
        return sorted(index for index, why in self.failed.items() if why.kind in kinds)

    def _accept(self, index: int, payload: bytes) -> None:
        try:
            self.results[index] = self._read(payload, self._plan, index)
            self.failed.pop(index, None)
        except GivenUpError:
            self.counted_out.add(index)
        except EnvironmentFailedError as error:
            self._refuse(index, str(error), kind="environment")
        except (CodecError, TrajectoryError) as error:
            self._refuse(index, f"refused: {error}")

    def _refuse(self, index: int, why: str, *, kind: FailureKind = "lost") -> None:
        self.refused.add(index)
        self.failed[index] = Arrival(self.mode, index, why, kind=kind)
        job_id, round_index = self._place
        identity = {"job": job_id, "round": round_index, "actor": index}
        _LOG.warning("result refused", extra={**identity, "mode": self.mode, "why": why})
