"""Weights & Biases. `WANDB_MODE=offline` writes files that `wandb sync` uploads later."""

from collections.abc import Mapping

import wandb
from pydantic import JsonValue

from nitro.tracking.metrics import TrackedRun


class WandbRun:
    """A run; its id is the job's."""

    last_round: int | None = None
    """None offline: the package does not know."""

    def __init__(self, run: TrackedRun, *, project: str) -> None:
        self._run = wandb.init(
            project=project,
            id=run.job_id,
            name=run.name,
            tags=list(run.tags),
            config=run.config,
            resume="allow",
        )
        self._run.define_metric("*", step_metric="round")

    def log(self, round_index: int, metrics: Mapping[str, float]) -> None:
        """Log a round."""
        self._run.log({"round": round_index, **metrics})

    def finish(self, summary: Mapping[str, JsonValue]) -> None:
        """Log the run's results, and close it."""
        self._run.summary.update(dict(summary))
        self._run.finish()


open_run = WandbRun
"""Returns a job's run: the existing one, or else a new one."""
