"""Recently seen learners, and why none takes a waiting job."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from services.scaler.book.records import JobRecord
from services.scaler.capacity.decision import is_held, queued_at
from shared.contracts.jobs import JobStatus
from shared.contracts.learner_kind import MachineKind

SILENT_S = 20.0
"""How long no learner may ask before a queued job reports it. A learner asks every second; a new
one loads its libraries first.
"""
_FORGOTTEN_S = 60.0
"""Silence after which a learner and its trouble no longer count."""
_MOST = 100
_WAITING: tuple[JobStatus, ...] = ("queued", "running")
"""A job whose learner is lost is still running."""
_NOBODY = "a learner: none asks for work; check that one runs, its log and its /readyz"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    kind: MachineKind | None
    job_id: str | None
    trouble: str | None
    at: float


class LearnersHeard:
    """Each learner's last request for work."""

    def __init__(self, *, since: float) -> None:
        """Begin without any learner since a time in Unix seconds."""
        self._since = since
        self._heard: dict[str, _Heard] = {}

    def note(
        self,
        learner_id: str,
        kind: MachineKind | None,
        trouble: str | None,
        now: float,
        *,
        job_id: str | None = None,
    ) -> bool:
        """Record a learner's request; return whether its ability to work has changed."""
        before = self._heard.get(learner_id)
        heard = {name: each for name, each in self._heard.items() if now < each.at + _FORGOTTEN_S}
        newest = sorted(heard.items(), key=lambda item: item[1].at)[-_MOST:]
        said = _Heard(kind=kind, job_id=job_id, trouble=trouble, at=now)
        self._heard = {**dict(newest), learner_id: said}
        return trouble != (None if before is None else before.trouble)

    def trouble_with(self, job_id: str, now: float) -> str | None:
        """Return the reported trouble of the learner that was started for a job."""
        own = [h for h in self._heard.values() if h.job_id == job_id and now < h.at + _FORGOTTEN_S]
        newest = max(own, key=lambda heard: heard.at, default=None)
        if newest is None or newest.trouble is None:
            return None
        return f"its learner, which says: {newest.trouble}"

    def why_waits(
        self, jobs: Sequence[JobRecord], kind: MachineKind, now: float
    ) -> tuple[str | None, float]:
        """Return why none of the permanent learners takes the waiting jobs.

        Args:
            jobs: All that have not ended.
            kind: What trains them.
            now: Unix seconds.

        Returns:
            The reason, None where there is none, and in how many seconds there may be one.
        """
        waiting = [r for r in jobs if r.job.learner == kind and r.job.status in _WAITING]
        # One learner may train every kind: while any works, the job's turn may come.
        held = any(is_held(record, now) for record in jobs if record.job.learner != "external")
        if not waiting or held:
            return None, math.inf
        able = {
            name: each
            for name, each in self._heard.items()
            if each.kind in (None, kind) and now < each.at + _FORGOTTEN_S
        }
        troubles = [f"{name} says: {each.trouble}" for name, each in able.items() if each.trouble]
        if troubles and len(troubles) == len(able):
            return f"a learner that can work; {'; '.join(troubles)}", math.inf
        heard_at = max((each.at for each in able.values()), default=self._since)
        left_s = max(heard_at, *map(queued_at, waiting)) + SILENT_S - now
        return (None, left_s) if left_s > 0 else (_NOBODY, math.inf)
