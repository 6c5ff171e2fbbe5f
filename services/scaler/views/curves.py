"""A job's rounds as columns. Reads only the requested stretch, and not the ledger.

Opening a long job requests all of its rounds, so unchanging stretches are cached.

Each plan contains its new lines of the bill, so the sum over all plans is the bill so far.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from services.scaler.book.attempts import AttemptKey, RoundEntry
from services.scaler.book.book import Book
from services.scaler.book.records import JobRecord
from services.scaler.rounds.record import actor_trouble
from shared.contracts.jobs import FINISHED
from shared.contracts.rounds import EvaluationResult, LaunchCounts, RoundTiming, TrajectoryCounts
from shared.contracts.views.curves import Column, Curves, Ending

Value = float | int | None
COLUMNS = (
    "round", "planned_at", "attempts", "actors", "own", "requested", "evaluations",
    "ratio", "score", "env_steps",
    "train_return", "train_episodes", "dropped_episodes", "begun_anew",
    "eval_return", "eval_min", "eval_max", "eval_episodes",
    *RoundTiming.model_fields, *TrajectoryCounts.model_fields,
    "own_busy_s", "retried", "actors_lost", "throttled", "cold_starts", "launch_s", "spent_usd",
)  # fmt: skip
"""Columns that are always sent, empty before the first round."""
SoFar = Callable[[AttemptKey], LaunchCounts | None]
"""Returns the outcome so far of a launch in flight."""


def curves(
    record: JobRecord, entries: Sequence[RoundEntry], *, after: int, limit: int, so_far: SoFar
) -> Curves:
    """Return a stretch of a job's rounds: at most `limit` after a round, -1 for the first.

    `entries` are these rounds in order, and one more if there is one.
    """
    stretch = entries[:limit]
    # A plan that ended the job at its first attempt is not a round.
    rounds = [entry for entry in stretch if entry.attempts[0].plan.stop is None]
    endings = [entry for entry in stretch if entry.attempts[0].plan.stop is not None]
    columns = _by_name([_row(entry, so_far) for entry in rounds])
    costs = _by_name([_cost([entry]) for entry in rounds])
    return Curves(
        job_id=record.job.job_id,
        generation=record.rewinds,
        num_rounds=max(record.job.progress.rounds, rounds[-1].round + 1 if rounds else 0),
        next_after=_next_after(rounds, after),
        more=len(entries) > limit,
        columns={name: columns.get(name, ()) for name in COLUMNS},
        cost={item: tuple(usd or 0.0 for usd in column) for item, column in costs.items()},
        stats=_by_name([{} if e.result is None else e.result.stats for e in rounds]),
        ending=_ending(endings, record) if endings else None,
    )


def _by_name(rows: Sequence[Mapping[str, Value]]) -> dict[str, Column]:
    """Return rows as columns, one for each name in any row."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: tuple(row.get(name) for row in rows) for name in names}


def _next_after(rounds: Sequence[RoundEntry], after: int) -> int:
    for entry in rounds:
        landed = all(attempt.launches is not None for attempt in entry.attempts)
        if entry.result is None or not landed:
            break
        after = entry.round
    return after


def _row(entry: RoundEntry, so_far: SoFar) -> dict[str, Value]:
    plan, result = entry.last.plan, entry.result
    known = [a.launches or so_far(a.key) for a in entry.attempts]
    launches = [one for one in known if one is not None and one.requested]
    trouble = actor_trouble(launches)
    launched_s = [one.launch_s for one in launches if one.launch_s is not None]
    returns = () if result is None else result.episode_returns
    timing = dict.fromkeys(RoundTiming.model_fields) if result is None else dict(result.timing)
    counted = TrajectoryCounts.model_fields
    trajectories = dict.fromkeys(counted) if result is None else dict(result.trajectories)
    return {
        "round": entry.round,
        "planned_at": entry.attempts[0].planned_at,
        "attempts": len(entry.attempts),
        "actors": plan.num_actors,
        "own": plan.own,
        "requested": plan.requested,
        "evaluations": plan.num_evaluations,
        "ratio": plan.ratio,
        "score": plan.boosting_score,
        "env_steps": None if result is None else result.env_steps,
        "train_return": fmean(returns) if returns else None,
        "train_episodes": None if result is None else len(returns),
        "dropped_episodes": None if result is None else result.dropped_episodes,
        "begun_anew": None if result is None else result.begun_anew,
        **_evaluation(None if result is None else result.evaluation),
        **timing,
        **trajectories,
        "own_busy_s": None if result is None or result.own is None else result.own.busy_s,
        "retried": trouble.retried if launches else None,
        "actors_lost": trouble.lost if launches else None,
        "throttled": sum(one.throttled for one in launches) if launches else None,
        "cold_starts": sum(one.cold_starts for one in launches) if launches else None,
        "launch_s": max(launched_s, default=None),
        "spent_usd": entry.attempts[0].plan.spent_usd,
    }


def _evaluation(evaluation: EvaluationResult | None) -> dict[str, Value]:
    returns = () if evaluation is None else evaluation.returns
    return {
        "eval_return": fmean(returns) if returns else None,
        "eval_min": min(returns, default=None),
        "eval_max": max(returns, default=None),
        "eval_episodes": len(returns),
    }


def _cost(entries: Iterable[RoundEntry]) -> dict[str, float]:
    """Return the dollars that became final with the plans of some rounds, by item."""
    items: defaultdict[str, float] = defaultdict(float)
    for entry in entries:
        for attempt in entry.attempts:
            for line in attempt.plan.settled:
                items[line.item] += line.amount_usd
    return items


def _ending(endings: Sequence[RoundEntry], record: JobRecord) -> Ending:
    plan = endings[-1].last.plan
    return Ending.model_validate(
        {
            "round": plan.round,
            "stop": plan.stop,
            "reason": plan.reason,
            "spent_usd": plan.spent_usd,
            "cost": _cost(endings),
            **_evaluation(record.final_evaluation),
        }
    )


_KEPT = 32
"""Stretches, of all jobs. One of 250 rounds takes about 0.4 MB."""
_Key = tuple[str, int, float | None, int, int]
"""Job, its rewinds, its end, the round before the stretch, and the stretch's longest length."""


@dataclass(kw_only=True, eq=False)
class CurveStretches:
    """Answers with a stretch of a job's rounds, on any thread."""

    book: Book
    so_far: SoFar
    _kept: dict[_Key, Curves] = field(default_factory=dict)

    def of(self, record: JobRecord, *, after: int, limit: int) -> Curves:
        """Return at most `limit` rounds after a round."""
        job = record.job
        key = (job.job_id, record.rewinds, job.finished_at, after, limit)
        kept = self._kept.get(key)
        if kept is not None:
            num_rounds = max(kept.num_rounds, job.progress.rounds)
            return kept.model_copy(update={"num_rounds": num_rounds})
        entries = self.book.rounds(job.job_id, first=after + 1, limit=limit + 1)
        made = curves(record, entries, after=after, limit=limit, so_far=self.so_far)
        rounds = made.columns["round"]
        closed = bool(rounds) and made.next_after == rounds[-1]
        if closed and (job.status in FINISHED or (made.more and made.ending is None)):
            newest = [*self._kept.items()][1 - _KEPT :]
            self._kept = {**dict(newest), key: made}  # as a whole, for those who look
        return made
