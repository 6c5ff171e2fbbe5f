"""Estimates of a job: its cost, and whether it would be refused. Nothing is created."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from services.scaler.book.book import Book
from services.scaler.book.records import JobRecord
from services.scaler.jobs.admission import Admission, learner_in, possible_learners
from services.scaler.money.budget import (
    RoundPricing,
    closing_usd,
    final_evaluations,
    most_pricing,
)
from services.scaler.off_loop import OffLoop
from services.scaler.refusals import ApiError
from shared.contracts.going_on import resized
from shared.contracts.job_spec import JobSpec
from shared.contracts.problem import FieldError
from shared.contracts.views.files import JobEstimate

_LOOKED_AT = 200
"""Newest jobs that are searched for similar ones."""
_ALIKE = (
    "env_id", "algorithm", "preset", "actors", "steps_per_actor", "samples_per_round", "warm",
    "learner",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """Estimates jobs before they are submitted."""

    book: Book
    admission: Admission
    pricing: RoundPricing
    threads: OffLoop

    async def of(self, spec: JobSpec) -> JobEstimate:
        """Return the most that a job can cost, and its probable cost.

        Raises:
            ApiError: 503, this is unknown now.
        """
        spec = spec.resolved()
        waits = self.admission.waits_for_an_actor(spec)
        learners, errors = possible_learners(spec), tuple[FieldError, ...]()
        queued = spec
        try:
            if waits:
                self.admission.refuse_at_once(spec, self.pricing)
            else:
                environment = await self.admission.admit(spec, self.pricing)
                learners, queued = {learner_in(spec, environment)}, resized(spec, environment)
        except ApiError as error:
            if not error.errors:
                raise
            errors = error.errors
        pricing = most_pricing(spec, learners, self.pricing)
        like = alike(queued, await self.threads.run(self._newest_of, spec.env_id))
        rounds = _rounds(spec, like)
        worst_round_usd = pricing.worst_case_usd(spec.actors.max + final_evaluations(spec))
        all_rounds_usd = rounds * worst_round_usd + closing_usd(spec, pricing)
        worst_usd = min(all_rounds_usd, spec.stop.budget_usd)
        expected_usd = _per_round([r.settled_usd for r in like], like, rounds)
        told = f"Of {len(like)} jobs like it among the newest." if like else "No job is like it."
        return JobEstimate(
            accepted=not errors,
            errors=errors,
            checked_environment=not waits,
            spec=spec,
            rounds=rounds,
            worst_usd=worst_usd,
            worst_round_usd=worst_round_usd,
            expected_usd=None if expected_usd is None else min(expected_usd, worst_usd),
            expected_s=_per_round([r.projected_wall_s for r in like], like, rounds),
            assumptions=(
                told,
                "At its worst every actor runs to its time-out twice. The budget is a hard limit.",
                "Jobs are alike with equal environment, algorithm, preset, actors and steps.",
            ),
        )

    def _newest_of(self, env_id: str) -> list[JobRecord]:
        rows = self.book.rows(limit=_LOOKED_AT, before=None)
        named = (row.job_id for _, row in rows if row.env_id == env_id and row.round)
        records = map(self.book.job, named)
        return [record for record in records if record is not None]


def alike(spec: JobSpec, records: Sequence[JobRecord]) -> list[JobRecord]:
    """Return the jobs with rounds that are like a job's."""
    wanted = [getattr(spec, name) for name in _ALIKE]
    return [
        record
        for record in records
        if record.job.progress.rounds
        and [getattr(record.job.spec, name) for name in _ALIKE] == wanted
        and record.job.spec.scaling.policy == spec.scaling.policy
    ]


def _rounds(spec: JobSpec, like: Sequence[JobRecord]) -> int:
    """Return the rounds of a job: by its steps, if jobs like it show how many a round has."""
    steps, done = spec.stop.max_env_steps, [record.job.progress for record in like]
    played = sum(each.env_steps for each in done)
    if steps is None or not played:
        return spec.stop.max_rounds
    return min(spec.stop.max_rounds, math.ceil(steps * sum(each.rounds for each in done) / played))


def _per_round(sums: Sequence[float], like: Sequence[JobRecord], rounds: int) -> float | None:
    """Return the sum of this many rounds, from the mean of those that were made."""
    made = sum(record.job.progress.rounds for record in like)
    return sum(sums) / made * rounds if made else None
