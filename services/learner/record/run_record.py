"""The run's record: one JSON line per round, the bill, and a description of the machine.

`rounds.jsonl` is the source of truth for every plot and table. A line has the scaler's plan, the
learner's result, the curvature of the policy after the update, and the evaluation of the round's
policy. Final plans have lines without a result, the last of them with the final evaluation. Only
`timing`, `elapsed_s` and money differ between two runs of one seed.
"""

import contextlib
import importlib.metadata
import json
import logging
import platform
from collections.abc import Sequence

from pydantic import ValidationError

from services.learner.record.best import EvaluatedCheckpoint, evaluated_checkpoint
from shared.artifacts.store import (
    COST_FILE,
    ENVIRONMENT_FILE,
    JOB_FILE,
    LEDGER_FILE,
    ROUNDS_FILE,
    ArtifactStore,
)
from shared.contracts.billing import JobCost, LedgerLine
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.contracts.rounds import RoundLine, RoundPlan
from shared.service.cores import usable_cores

_LOG = logging.getLogger(__name__)
_LIBRARIES = ("nitro-rl", "torch", "numpy", "redis", "zstandard", "pydantic")


class RunRecord:
    """Writes one job's record."""

    def __init__(self, artifacts: ArtifactStore, job_id: str) -> None:
        self._artifacts = artifacts
        self._job_id = job_id
        self._evaluated: RoundLine | None = None
        """The line that ended the job before its resume, whose round now runs."""
        self._spec: JobSpec | None = None
        self._best: EvaluatedCheckpoint | None = None
        self._num_lines = 0
        """Number of written lines of the bill."""

    @property
    def best(self) -> int | None:
        """Round of the best evaluated checkpoint; None before the first."""
        return None if self._best is None else self._best.next_round

    def begin(
        self, job: Job, *, next_round: int, bill: Sequence[LedgerLine], device: str
    ) -> dict[int, int]:
        """Describe the job and the machine; drop lines of rounds that will be repeated.

        Returns:
            Environment steps of each kept round, by number.
        """
        self._spec = job.spec
        self.describe(job)
        self._write_json(ENVIRONMENT_FILE, _environment(job, device))
        lines = read_lines(self._artifacts, self._job_id)
        kept = {
            line.plan.round: line
            for line in lines
            if line.plan.round < next_round and line.result is not None
        }
        ended = (line for line in lines if line.result is None and line.evaluation is not None)
        behind = job.spec.rounds_behind
        # Evaluation of the resumed policy: any other is repeated.
        self._evaluated = next(
            (line for line in ended if behind(line.plan.round) == next_round), None
        )
        for line in (*kept.values(), *filter(None, [self._evaluated])):
            self._compare(line)
        if len(kept) < next_round:
            _LOG.warning(
                "the record lacks rounds: its file was changed or damaged",
                extra={"job": self._job_id, "file": ROUNDS_FILE, "rounds": next_round - len(kept)},
            )
        text = "".join(line.model_dump_json() + "\n" for line in kept.values())
        self._artifacts.write(self._job_id, ROUNDS_FILE, text.encode())
        self.bill(bill)
        return {
            index: line.result.env_steps for index, line in kept.items() if line.result is not None
        }

    def describe(self, job: Job) -> None:
        """Write the job and its status."""
        self._write_json(JOB_FILE, job.model_dump(mode="json"))

    def append(self, line: RoundLine) -> None:
        """Add one round, with its policy's evaluation from before a resume if it has none."""
        earlier = self._evaluated
        if earlier is not None and line.plan.round == earlier.plan.round and not line.evaluation:
            line = line.model_copy(update={"evaluation": earlier.evaluation})
        self._compare(line)
        self._artifacts.append(self._job_id, ROUNDS_FILE, line.model_dump_json())

    def _compare(self, line: RoundLine) -> None:
        found = None if self._spec is None else evaluated_checkpoint(line, self._spec)
        self._best = max(filter(None, (self._best, found)), default=None)

    def settle(self, plan: RoundPlan) -> None:
        """Append a plan's new lines of the bill."""
        text = "\n".join(line.model_dump_json() for line in plan.lines_behind(self._num_lines))
        if text:
            self._artifacts.append(self._job_id, LEDGER_FILE, text)
        self._num_lines = max(self._num_lines, plan.settled_from + len(plan.settled))

    def bill(self, lines: Sequence[LedgerLine]) -> None:
        """Replace the bill by the scaler's, which is authoritative."""
        self._num_lines = len(lines)
        text = "".join(line.model_dump_json() + "\n" for line in lines)
        self._artifacts.write(self._job_id, LEDGER_FILE, text.encode())

    def sum_up(self, cost: JobCost) -> None:
        """Write the job's outcome, and its projected time on AWS and on servers."""
        self._write_json(COST_FILE, cost.model_copy(update={"lines": ()}).model_dump(mode="json"))

    def _write_json(self, name: str, content: object) -> None:
        self._artifacts.write(self._job_id, name, json.dumps(content, indent=2).encode())


def read_lines(artifacts: ArtifactStore, job_id: str) -> list[RoundLine]:
    """Return the readable lines of a job's record."""
    lines = []
    for text in (artifacts.read(job_id, ROUNDS_FILE) or b"").splitlines():
        # A line cut off by a crash belongs to a round that is repeated.
        with contextlib.suppress(ValidationError):
            lines.append(RoundLine.read(text))
    return lines


def _environment(job: Job, device: str) -> dict[str, object]:
    return {
        "hyperparameters": job.hyperparameters.model_dump(mode="json"),
        "environment": job.described_environment.model_dump(mode="json"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": usable_cores(),
        "device": device,
        "libraries": {name: _version(name) for name in _LIBRARIES},
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
