"""What a run shows while it runs: gauges and TensorBoard scalars, read back."""

from pathlib import Path

from prometheus_client import CollectorRegistry
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from services.learner.record.tracking import LearnerMetrics, TensorBoard
from shared.contracts.job_spec import JobSpec
from shared.contracts.rounds import (
    Curvature,
    EvaluationResult,
    RoundLine,
    RoundResult,
    RoundTiming,
    TrajectoryCounts,
)
from tests.services.learner.made_rounds import plan

_CURVATURE = Curvature(
    lambda_max=1.5, lambda_min=-0.5, residual=0.001, matvecs=9, num_samples=20, elapsed_s=0.1
)
_EVALUATION = EvaluationResult(policy_version=0, returns=(10.0, 30.0), lengths=(10, 30))


def _timing() -> RoundTiming:
    stages = ("plan", "collect", "update", "curvature", "evaluate", "checkpoint", "total")
    return RoundTiming.model_validate({f"{stage}_s": i / 8 for i, stage in enumerate(stages)})


def _line(round_index: int, *, evaluated: bool) -> RoundLine:
    evaluation = _EVALUATION if evaluated else None
    result = RoundResult(
        round=round_index,
        policy_version=round_index + 1,
        trajectories=TrajectoryCounts(launched=8, used=4, late=1, duplicate=2, lost=3),
        env_steps=100,
        episode_returns=() if evaluated else (1.0, 2.0),
        evaluation=evaluation,
        stats={"kl": 0.25},
        timing=_timing(),
    )
    made = plan("tracked", round_index=round_index)
    return RoundLine(plan=made, result=result, curvature=_CURVATURE, evaluation=evaluation)


def _last_line() -> RoundLine:
    made = plan("tracked", round_index=2).model_copy(update={"stop": "max_rounds"})
    return RoundLine(plan=made, result=None, curvature=None, evaluation=_EVALUATION)


def test_metrics_count_every_trajectory_by_what_became_of_it() -> None:
    registry = CollectorRegistry()
    metrics = LearnerMetrics(registry)
    for line in (_line(0, evaluated=True), _line(1, evaluated=False), _last_line()):
        metrics.observe(line)
    value = registry.get_sample_value
    assert value("nitro_learner_rounds_total") == 2
    assert value("nitro_learner_env_steps_total") == 200
    assert value("nitro_learner_evaluation_return") == 20.0
    outcomes = {
        outcome: value("nitro_learner_trajectories_total", {"outcome": outcome})
        for outcome in ("used", "late", "duplicate", "lost")
    }
    assert outcomes == {"used": 8, "late": 2, "duplicate": 4, "lost": 6}
    assert value("nitro_learner_stage_seconds_total", {"stage": "update"}) == 0.5


def _scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_scalars_stand_at_the_steps_they_were_measured_at(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path, JobSpec(), env_steps={})
    for line in (_line(0, evaluated=True), _line(1, evaluated=False), _last_line()):
        board.observe(line)
    board.close()
    # An evaluation is of the policy before the round's update, a training return of its steps.
    assert _scalars(tmp_path, "return/evaluation") == [(0, 20.0), (200, 20.0)]
    assert _scalars(tmp_path, "return/training") == [(200, 1.5)]
    assert _scalars(tmp_path, "update/kl") == [(100, 0.25), (200, 0.25)]
    assert _scalars(tmp_path, "curvature/lambda_min") == [(100, -0.5), (200, -0.5)]
    # The plan that only ends the job has no actors, and is no round.
    assert _scalars(tmp_path, "scaling/num_actors") == [(0, 4.0), (100, 4.0)]
    assert _scalars(tmp_path, "timing/update_s") == [(100, 0.25), (200, 0.25)]


def test_where_rounds_overlap_evaluations_stand_at_what_their_policy_had_learned_from(
    tmp_path: Path,
) -> None:
    spec = JobSpec.model_validate({"algorithm": "impact", "rounds_in_flight": 3})
    # Resumed behind two rounds: the third and the fourth have policies that lack two each.
    board = TensorBoard(tmp_path, spec, env_steps={0: 40, 1: 60})
    for line in (_line(2, evaluated=True), _line(3, evaluated=True)):
        board.observe(line)
    board.close()
    assert _scalars(tmp_path, "return/evaluation") == [(0, 20.0), (40, 20.0)]
    assert _scalars(tmp_path, "update/kl") == [(200, 0.25), (300, 0.25)]


def test_what_the_run_was_asked_to_do_stands_beside_its_scalars_once(tmp_path: Path) -> None:
    asked = {"learning_rate": 3e-4, "hidden_sizes": (64, 64)}
    TensorBoard(tmp_path, JobSpec(seed=7), env_steps={}, hyperparameters=asked).close()
    TensorBoard(tmp_path, JobSpec(seed=7), env_steps={0: 1}, hyperparameters=asked).close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    written = events.PluginTagToContent("hparams")
    start = HParamsPluginData.FromString(written["_hparams_/session_start_info"])
    told = start.session_start_info.hparams
    assert told["seed"].number_value == 7
    assert told["env_id"].string_value == "Hopper-v5"
    assert told["hyperparameters.learning_rate"].number_value == 3e-4
    assert told["hyperparameters.hidden_sizes"].string_value == "(64, 64)"
