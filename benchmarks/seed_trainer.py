"""Trains the jobs of single seeds to their end on a local system, everything real.

Jobs stay in their folder. After Ctrl-C the same command resumes, and skips seeds that
are done. After a SIGKILL it does too, but waits for the lost round's deadline first.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from benchmarks.measurement import progress
from nitro.client.client import NitroClient
from nitro.client.follow import Snapshot, follow
from nitro.local.own_environments import actor_variables
from nitro.local.system import LocalSystem
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.hyperparameters.presets import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedTrainer:
    """Trains one job after the other on a running local system."""

    system: LocalSystem
    client: NitroClient
    runs_dir: Path

    @classmethod
    @contextmanager
    def opened(cls, runs_dir: Path, *, packages: Sequence[str] = ()) -> Iterator[Self]:
        """Start the local system, and end it again.

        Args:
            runs_dir: Where jobs stay.
            packages: Python packages that register environments.
        """
        with (
            LocalSystem(runs_dir, actor_variables=actor_variables(packages)) as system,
            NitroClient(system.api_url, system.token, timeout_s=120.0) as client,
        ):
            system.wait_ready()
            yield cls(system=system, client=client, runs_dir=runs_dir)

    def train(self, spec: JobSpec) -> Path:
        """Train the job, or go on with it; return its run's folder.

        Raises:
            RuntimeError: The job did not end well.
        """
        job = self.client.submit(spec, idempotency_key=f"reference-{spec_digest(spec)}")
        if job.status in ("stopped", "failed"):
            job = self.client.resume(job.job_id)
        try:
            job = self._followed(job)
        except KeyboardInterrupt:
            # Not in the middle of a round: what its actors made would be lost with the cache, and
            # going on would wait out its deadline first.
            progress("stopping after the update in hand")
            self.client.stop(job.job_id)
            self._followed(job)
            raise
        if job.status != "succeeded":
            raise RuntimeError(f"seed {spec.seed}, job {job.job_id} {job.status}: {job.error}")
        return self.runs_dir / job.job_id

    def _followed(self, job: Job) -> Job:
        tenth = 0
        for snapshot in follow(self.client, job.job_id, check=self.system.check, every_s=1.0):
            job = snapshot.job
            before, tenth = tenth, 10 * snapshot.finished_rounds // job.spec.stop.max_rounds
            progress(_described(snapshot), transient=tenth == before)
        return job


def spec_digest(spec: JobSpec) -> str:
    """Return what tells a job from others, also from one before its preset was changed."""
    presets = [
        resolve(spec.algorithm, spec.preset, spec.hyperparameters, images=images).model_dump_json()
        for images in (False, True)
    ]
    whole = "\n".join((spec.model_dump_json(), *presets))
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


def _described(snapshot: Snapshot) -> str:
    spec, training, rate = snapshot.job.spec, snapshot.training_return, snapshot.steps_per_s
    return (
        f"  seed {spec.seed}: round {snapshot.finished_rounds} of {spec.stop.max_rounds}"
        + (f", return {training:.0f}" if training is not None else "")
        + (f", {rate:,.0f} steps/s" if rate is not None else "")
    )
