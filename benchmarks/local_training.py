"""Training short jobs on a running local system, one per sample, every part real."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from nitro.runs.reading import read_run
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import FINISHED
from shared.contracts.rounds import RoundResult

_PATIENCE_S = 300.0
_POLL_S = 0.5
"""Rounds time themselves; asking more often takes time from them."""


@dataclass(slots=True, kw_only=True)
class LocalTraining:
    """Trains one job again and again and keeps the timing of its rounds."""

    system: LocalSystem
    client: NitroClient
    runs_dir: Path
    spec: JobSpec
    results: list[RoundResult] = field(default_factory=list)
    """Of every round of every sample."""

    def sample(self) -> float:
        """Train one job; return its steps per second."""
        job = self.client.submit(self.spec)
        self._wait(job.job_id)
        results = self._results(job.job_id)
        self.results += results
        # A round's total begins where the one before it ended, so the sum is the job's wall time.
        return sum(r.env_steps for r in results) / sum(r.timing.total_s for r in results)

    def _wait(self, job_id: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while (job := self.client.get(job_id)).status not in FINISHED:
            self.system.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"job {job_id} was not done after {_PATIENCE_S:g} s")
            time.sleep(_POLL_S)
        if job.status != "succeeded":
            raise RuntimeError(f"job {job_id} {job.status}: {job.error}")

    def _results(self, job_id: str) -> list[RoundResult]:
        lines = read_run(self.runs_dir / job_id).rounds
        results = [line.result for line in lines if line.result is not None]
        rounds = self.spec.stop.max_rounds
        if len(results) != rounds:
            raise RuntimeError(f"job {job_id} recorded {len(results)} rounds, not {rounds}")
        return results
