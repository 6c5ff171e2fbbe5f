"""MLflow. Without MLFLOW_TRACKING_URI runs go to `mlflow.db`, a SQLite file in this folder."""

import os
import time
from collections.abc import Mapping

from mlflow.entities import Metric, Param, RunTag
from mlflow.tracking import MlflowClient
from pydantic import JsonValue

from nitro.tracking.metrics import TrackedRun

_LOCAL = "sqlite:///mlflow.db"
_TAG = "nitro.job"
_LONGEST_VALUE = 6000
"""Most characters of a parameter that every server accepts."""
_PARAMS_AT_ONCE = 100


class MlflowRun:
    """A run; its tag `nitro.job` is the job's id."""

    def __init__(self, run: TrackedRun, *, project: str) -> None:
        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI", _LOCAL))
        experiment = self._client.get_experiment_by_name(project)
        place = (
            self._client.create_experiment(project)
            if experiment is None
            else (experiment.experiment_id)
        )
        found = self._client.search_runs([place], f"tags.`{_TAG}` = '{run.job_id}'", max_results=1)
        if found:
            self._run_id = found[0].info.run_id
            self._client.update_run(self._run_id, status="RUNNING")
            return
        # As one value: MLflow's names allow fewer characters than our tags.
        tags = {_TAG: run.job_id} | ({"nitro.tags": " ".join(run.tags)} if run.tags else {})
        created = self._client.create_run(place, run_name=run.name, tags=tags)
        self._run_id = created.info.run_id
        params = [Param(name, str(value)[:_LONGEST_VALUE]) for name, value in run.config.items()]
        for start in range(0, len(params), _PARAMS_AT_ONCE):
            self._client.log_batch(self._run_id, params=params[start : start + _PARAMS_AT_ONCE])

    @property
    def last_round(self) -> int | None:
        """The last logged round."""
        # The plan that ended a job has no actors, and a resume replaces it by a round.
        history = self._client.get_metric_history(self._run_id, "scaling/num_actors")
        return max((metric.step for metric in history), default=None)

    def log(self, round_index: int, metrics: Mapping[str, float]) -> None:
        """Log a round."""
        now_ms = int(time.time() * 1000)
        batch = [Metric(name, value, now_ms, round_index) for name, value in metrics.items()]
        self._client.log_batch(self._run_id, metrics=batch)

    def finish(self, summary: Mapping[str, JsonValue]) -> None:
        """Log the run's results, and close it."""
        if not summary:
            return  # the run continues
        tags = [RunTag(f"nitro.{name}", str(value)) for name, value in summary.items()]
        self._client.log_batch(self._run_id, tags=tags)
        status = "FAILED" if summary.get("status") == "failed" else "FINISHED"
        self._client.set_terminated(self._run_id, status=status)


open_run = MlflowRun
"""Returns a job's run: the existing one, or else a new one."""
