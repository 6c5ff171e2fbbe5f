"""What a round of images takes in the cache: every frame once, and the network that they need."""

from services.scaler.jobs.admission import MAX_TRAJECTORY_BYTES, round_bytes, trajectory_errors
from shared.contracts.environment_spec import DiscreteActionSpec, EnvironmentSpec, ObservationSpec
from shared.contracts.job_spec import JobSpec
from shared.trajectory import codec

SPEC = JobSpec.model_validate(
    {"env_id": "ALE/Qbert-v5", "preset": "standard", "steps_per_actor": 99, "actors": {"max": 10}}
)


def environment(frame_stack: int | None) -> EnvironmentSpec:
    return EnvironmentSpec(
        env_id="ALE/Qbert-v5",
        observation=ObservationSpec(shape=(4, 84, 84), dtype="uint8", frame_stack=frame_stack),
        action=DiscreteActionSpec(n=6),
        max_episode_steps=None,
        versions={},
    )


def test_stacked_frames_count_once() -> None:
    weights = 4 * 1_687_206  # Nature's network with six actions
    steps = 10 * (99 + 1)
    frame, rest = 84 * 84, 8 + 10
    assert round_bytes(SPEC, environment(4)) == steps * (frame + rest) + 2 * weights
    assert round_bytes(SPEC, environment(None)) == steps * (4 * frame + rest) + 2 * weights


def test_a_fragment_that_no_learner_would_take_in_is_refused() -> None:
    assert codec.DEFAULT_MAX_BYTES == MAX_TRAJECTORY_BYTES
    most = MAX_TRAJECTORY_BYTES // (4 * 84 * 84) - 1
    fits = SPEC.model_copy(update={"steps_per_actor": most})
    assert trajectory_errors(fits, environment(4)) == []
    larger = SPEC.model_copy(update={"steps_per_actor": most + 1})
    (error,) = trajectory_errors(larger, environment(4))
    assert error.field == "steps_per_actor"
    assert "of 9510 steps may have 256.0 MB, the learner accepts 256 MB" in error.message
    # Every tenth step ends an episode, and brings its final observation.
    limited = environment(4).model_copy(update={"max_episode_steps": 10})
    (error,) = trajectory_errors(fits, limited)
    assert "may have 281.5 MB" in error.message
