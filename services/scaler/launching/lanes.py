"""The times of a job's newest actors, kept in memory for viewers.

No decision depends on them, so they may be lost when the process ends.
"""

import time
from collections import OrderedDict
from collections.abc import Sequence
from statistics import fmean

from services.scaler.book.attempts import AttemptKey
from services.scaler.launching.orders import LaunchOrder
from services.scaler.launching.tasks import RolloutOutcome
from shared.cache.arrivals import Mode
from shared.contracts.views.actors import ActorLane, ActorLanes

KEPT_ACTORS = 50_000
"""Most actors that are kept, of all jobs' newest launches: some 50 MB."""


class Lanes:
    """The newest launches, and the ends of their actors. Read by any thread."""

    def __init__(self) -> None:
        self._launches: OrderedDict[AttemptKey, _Launch] = OrderedDict()
        self._num_actors = 0

    def begin(self, order: LaunchOrder, decided_at: float) -> None:
        """Note a launch and the time of its decision, by `time.perf_counter`."""
        self._launches[order.key] = _Launch(order, decided_at)
        self._num_actors += order.num_invocations
        while self._num_actors > KEPT_ACTORS and len(self._launches) > 1:
            _, oldest = self._launches.popitem(last=False)
            self._num_actors -= oldest.order.num_invocations

    def end(self, key: AttemptKey, outcome: RolloutOutcome, now: float) -> None:
        """Note an actor's end and its time, by `time.perf_counter`."""
        launch = self._launches.get(key)
        if launch is not None:
            task = outcome.task
            launch.ended[task.mode, task.actor_index] = _ended(outcome, now, launch.decided_at)

    def of(self, job_id: str, round_index: int | None) -> ActorLanes:
        """Return the actors of all attempts of a round, by default the newest."""
        known = [*self._launches.items()]
        found = [each for key, each in known if key.job_id == job_id]
        rounds = [launch.order.plan.round for launch in found]
        if not rounds:
            return ActorLanes(job_id=job_id, round=round_index or 0)
        wanted = max(rounds) if round_index is None else round_index
        launches = [each for each in found if each.order.plan.round == wanted]
        actors = [lane for launch in launches for lane in launch.lanes()]
        return ActorLanes(
            job_id=job_id,
            round=wanted,
            rounds_kept=(min(rounds), max(rounds)),
            decided_at=launches[0].decided_wall if launches else None,
            total=len(actors),
            actors=tuple(actors),
        )


class _Launch:
    """One launch and its actors, as they end."""

    def __init__(self, order: LaunchOrder, decided_at: float) -> None:
        self.order = order
        self.decided_at = decided_at
        self.decided_wall = time.time() - (time.perf_counter() - decided_at)
        self.ended: dict[tuple[str, int], ActorLane] = {}

    def lanes(self) -> list[ActorLane]:
        """Return a lane for each actor, evaluation episodes last."""
        order, attempt = self.order, self.order.plan.attempt
        indices: dict[Mode, Sequence[int]] = {
            "sample": order.samples,
            "evaluate": order.evaluations,
        }
        return [
            self.ended.get((mode, index))
            or ActorLane(index=index, mode=mode, attempt=attempt, state="running")
            for mode, of_mode in indices.items()
            for index in of_mode
        ]


def _ended(outcome: RolloutOutcome, now: float, decided_at: float) -> ActorLane:
    task, report, sent_at = outcome.task, outcome.report, outcome.sent_at
    ended_s = max(0.0, now - decided_at)
    sent_s = None if sent_at is None else max(0.0, sent_at - decided_at)
    lane = ActorLane(
        index=task.actor_index,
        mode=task.mode,
        attempt=task.attempt,
        state="failed" if report is None else report.outcome,
        sent_s=sent_s,
        ended_s=ended_s,
        tries=outcome.requests,
        reason=outcome.reason,
    )
    if report is None:
        return lane
    returns = report.episode_returns
    measured = {
        "cold_start": report.cold_start,
        "start_s": None if sent_s is None else max(0.0, ended_s - sent_s - report.total_s),
        "fetch_s": report.fetch_s,
        "rollout_s": report.rollout_s,
        "push_s": report.push_s,
        "steps": report.steps,
        "episode_return": fmean(returns) if returns else None,
    }
    return lane.model_copy(update=measured)
