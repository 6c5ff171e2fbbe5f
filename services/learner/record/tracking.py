"""Live metrics: TensorBoard scalars in the run's folder, Prometheus gauges on the learner.

Training returns (stochastic policy, fragments) and evaluation returns (deterministic policy, whole
episodes) are different quantities and never share a name.
"""

from collections.abc import Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge

from shared.contracts.job_spec import JobSpec
from shared.contracts.rounds import RoundLine

_COMPARED = ("return/evaluation", "return/training", "cost/spent_usd")
"""Scalars shown next to the hyper-parameters."""


class LearnerMetrics:
    """The learner process's Prometheus metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.rounds = Counter("nitro_learner_rounds", "Policy updates made.", registry=registry)
        self.env_steps = Counter(
            "nitro_learner_env_steps", "Environment steps learned from.", registry=registry
        )
        self.trajectories = Counter(
            "nitro_learner_trajectories",
            "Trajectories by outcome.",
            ["outcome"],
            registry=registry,
        )
        self.stage_s = Counter(
            "nitro_learner_stage_seconds",
            "Wall time by stage of the round.",
            ["stage"],
            registry=registry,
        )
        self.evaluation_return = Gauge(
            "nitro_learner_evaluation_return",
            "Mean return of the latest evaluation.",
            registry=registry,
        )
        self.busy = Gauge("nitro_learner_busy", "1 while a job trains.", registry=registry)

    def observe(self, line: RoundLine) -> None:
        """Count one round."""
        if line.evaluation is not None:
            returns = line.evaluation.returns
            self.evaluation_return.set(sum(returns) / len(returns))
        if line.result is None:
            return
        self.rounds.inc()
        self.env_steps.inc(line.result.env_steps)
        counts = line.result.trajectories
        for outcome in ("used", "late", "duplicate", "lost"):
            self.trajectories.labels(outcome).inc(getattr(counts, outcome))
        for stage in ("collect", "update", "curvature", "evaluate", "checkpoint"):
            self.stage_s.labels(stage).inc(getattr(line.result.timing, f"{stage}_s"))


class TensorBoard:
    """Scalars per round, with the environment steps as the step axis."""

    def __init__(
        self,
        folder: Path,
        spec: JobSpec,
        *,
        env_steps: Mapping[int, int],
        hyperparameters: Mapping[str, object] | None = None,
    ) -> None:
        """Continue after earlier rounds with these environment steps."""
        # Slow to import, and needed only once a job runs.
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(log_dir=str(folder))
        self._spec = spec
        self._env_steps = dict(env_steps)
        if not env_steps:
            self._describe(hyperparameters or {})

    def _describe(self, hyperparameters: Mapping[str, object]) -> None:
        """Write the run's settings, for the table of hyper-parameters."""
        from torch.utils.tensorboard.summary import hparams

        spec = self._spec
        asked: dict[str, object] = {
            "env_id": spec.env_id,
            "algorithm": spec.algorithm,
            "preset": spec.preset,
            "seed": spec.seed,
            "scaling": spec.scaling.policy,
            "actors.min": spec.actors.min,
            "actors.max": spec.actors.max,
            spec.size_field: spec.samples_per_round or spec.steps_per_actor,
            **{f"hyperparameters.{name}": value for name, value in hyperparameters.items()},
        }
        told = {
            name: value if isinstance(value, bool | int | float | str) else str(value)
            for name, value in asked.items()
        }
        # Not `add_hparams`, which would start a separate run.
        writer = self._writer._get_file_writer()  # type: ignore[no-untyped-call]
        for summary in hparams(told, dict.fromkeys(_COMPARED, 0.0)):  # type: ignore[no-untyped-call]
            writer.add_summary(summary)

    def observe(self, line: RoundLine) -> None:
        """Write one round's scalars."""
        index = line.plan.round
        step = self._steps_of_first(index)
        if line.plan.stop is None:
            self._scalar("scaling/num_actors", line.plan.num_actors, step)
        self._scalar("scaling/boosting_score", line.plan.boosting_score, step)
        self._scalar("scaling/ratio", line.plan.ratio, step)
        self._scalar("cost/spent_usd", line.plan.spent_usd, step)
        if line.evaluation is not None:
            learned = self._steps_of_first(self._spec.rounds_behind(index))
            self._scalar("return/evaluation", _mean(line.evaluation.returns), learned)
        if line.result is not None:
            self._env_steps[index] = line.result.env_steps
            step += line.result.env_steps
            self._scalar("return/training", _mean(line.result.episode_returns), step)
            for name, value in line.result.stats.items():
                self._scalar(f"update/{name}", value, step)
            for name, value in line.result.timing.model_dump().items():
                self._scalar(f"timing/{name}", value, step)
        if line.curvature is not None:
            self._scalar("curvature/lambda_max", line.curvature.lambda_max, step)
            self._scalar("curvature/lambda_min", line.curvature.lambda_min, step)
        self._writer.flush()

    def close(self) -> None:
        """Flush and close the event file."""
        self._writer.close()

    def _steps_of_first(self, num_rounds: int) -> int:
        """Return the environment steps of the first `num_rounds` rounds."""
        return sum(steps for index, steps in self._env_steps.items() if index < num_rounds)

    def _scalar(self, name: str, value: float | None, step: int) -> None:
        if value is not None:
            self._writer.add_scalar(name, value, step)


def _mean(values: tuple[float, ...]) -> float | None:
    return sum(values) / len(values) if values else None
