"""Trackio, which keeps runs on this machine and shows them in a browser."""

from collections.abc import Mapping

import trackio
from pydantic import JsonValue

from nitro.tracking.metrics import TrackedRun


class TrackioRun:
    """A run; its name is the job's id."""

    last_round: int | None = None

    def __init__(self, run: TrackedRun, *, project: str) -> None:
        self._run = trackio.init(
            project=project, name=run.job_id, config=run.config, resume="allow"
        )

    def log(self, round_index: int, metrics: Mapping[str, float]) -> None:
        """Log a round."""
        trackio.log(dict(metrics), step=round_index)

    def finish(self, summary: Mapping[str, JsonValue]) -> None:
        """Log the numbers among the run's results, and close it."""
        numbers = {f"summary/{n}": v for n, v in summary.items() if isinstance(v, int | float)}
        if numbers:
            trackio.log(numbers)
        trackio.finish()


open_run = TrackioRun
"""Returns a job's run: the existing one, or else a new one."""
