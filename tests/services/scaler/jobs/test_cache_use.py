"""A job's use of the cache: memory for its rounds, and network for its policies."""

import numpy as np
import pytest

from services.scaler.jobs.admission import admitted
from services.scaler.jobs.cache_use import (
    MAX_TRAJECTORY_BYTES,
    cache_errors,
    round_bytes,
    traffic_warnings,
    trajectory_errors,
)
from services.scaler.jobs.network_size import network_weights
from shared.contracts.environment_spec import (
    ActionSpec,
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
    MultiDiscreteActionSpec,
    ObservationSpec,
)
from shared.contracts.episode_rules import EpisodeRule
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.deployment.config import NitroConfig
from shared.deployment.machines import network_mb_per_s, node_for_traffic
from shared.hyperparameters.presets import ALGORITHMS
from shared.trajectory import codec
from tests.services.scaler.lambda_endpoint import HOPPER, IMAGES

ONE_ACTOR = {"actors": {"min": 1, "max": 1}}


@pytest.mark.parametrize(
    ("action", "sampled"),
    [
        (ContinuousActionSpec(low=(-1.0,) * 3, high=(1.0,) * 3), np.zeros(3, np.float32)),
        (DiscreteActionSpec(n=6), np.zeros((), np.int64)),
        (MultiDiscreteActionSpec(num_choices=(2, 3, 4)), np.zeros(3, np.int64)),
    ],
)
def test_a_step_takes_the_bytes_of_its_arrays(
    action: ActionSpec, sampled: np.typing.NDArray[np.generic]
) -> None:
    environment = HOPPER.model_copy(update={"action": action})
    scalars = np.zeros(2, np.float32).nbytes + np.zeros(2, np.bool_).nbytes
    step = np.zeros(11, np.float32).nbytes + sampled.nbytes + scalars
    shorter, longer = (
        round_bytes(JobSpec.model_validate({**ONE_ACTOR, "steps_per_actor": n}), environment)
        for n in (100, 101)
    )
    assert longer - shorter == step


def test_the_refusal_of_a_search_names_what_makes_it_smaller() -> None:
    def spec(directions: int, iterations: int) -> JobSpec:
        rule = {"directions": directions, "iterations": iterations}
        return JobSpec.model_validate({"algorithm": "es", "hyperparameters": rule})

    needed = round_bytes(spec(1000, 10), HOPPER)
    (error,) = cache_errors(spec(1000, 10), HOPPER, needed - 1, 0)
    assert error.field == "hyperparameters.directions"
    assert "lower hyperparameters.directions or hyperparameters.iterations" in error.message
    for smaller in (spec(500, 10), spec(1000, 5)):
        assert not [*cache_errors(smaller, HOPPER, needed - 1, 0)]


@pytest.mark.parametrize("algorithm", [*ALGORITHMS])
@pytest.mark.parametrize("preset", ["paper", "standard"])
def test_every_preset_fits_the_cache_that_is_deployed(algorithm: str, preset: str) -> None:
    room = NitroConfig().cache_memory_mb * 1024 * 1024
    for environment in (HOPPER, IMAGES):
        wanted = {"env_id": environment.env_id, "algorithm": algorithm, "preset": preset}
        assert round_bytes(JobSpec.model_validate(wanted), environment) < room


@pytest.mark.parametrize("size", [2000, 2004])
def test_trajectories_of_vectors_have_four_bytes_a_number_and_an_end_for_each_environment(
    size: int,
) -> None:
    observation = ObservationSpec(shape=(size,), dtype="float32")
    environment = HOPPER.model_copy(update={"observation": observation, "max_episode_steps": 100})

    def fits(steps: int) -> bool:
        observations = (steps + 4 + steps // 100) * 4 * size
        # Three numbers of an action, reward, log-probability, two marks, an episode's two numbers.
        return observations + steps * (12 + 4 + 4 + 2 + 8) + 2**16 <= 2**28

    most = max(steps for steps in range(33_000, 33_300, 4) if fits(steps))
    for steps in (most, most + 4):
        spec = JobSpec.model_validate({"steps_per_actor": steps, "envs_per_actor": 4})
        assert (not [*trajectory_errors(spec, environment)]) is fits(steps)


def test_what_is_not_observed_counts_in_a_trajectory_too() -> None:
    choices = MultiDiscreteActionSpec(num_choices=(2,) * 256)
    for size, fits in ((500, True), (520, False)):
        observation = ObservationSpec(shape=(size,), dtype="float32")
        environment = HOPPER.model_copy(update={"observation": observation, "action": choices})
        spec = JobSpec.model_validate({"steps_per_actor": 65_536})
        assert (65_536 * (4 * size + 8 * 256 + 10) < 2**28) is fits
        assert (not [*trajectory_errors(spec, environment)]) is fits


def test_a_trajectory_may_have_exactly_what_the_learner_takes_in() -> None:
    # The stacked frames are as large as may be; what is sent is a quarter of that.
    observation = ObservationSpec(shape=(4, 64, 64), dtype="uint8", frame_stack=4)
    environment = IMAGES.model_copy(update={"observation": observation})
    for steps, fits in ((2**14 - 1, True), (2**14, False)):
        spec = JobSpec.model_validate({"env_id": "ALE/Qbert-v5", "steps_per_actor": steps})
        assert (not [*trajectory_errors(spec, environment)]) is fits


@pytest.mark.parametrize(("size", "counted"), [(0, 12_288), (8_192, 12_288), (2**18, 3 * 2**17)])
def test_where_episodes_are_left_counts_one_and_a_half_times_in_cache_and_trajectory(
    size: int, counted: int
) -> None:
    spec = JobSpec.model_validate(
        {"envs_per_actor": 64, "steps_per_actor": 64, "episodes": {"horizon": "limit"}}
    )
    reset = spec.model_copy(update={"episodes": EpisodeRule(horizon="fragment")})
    kept = HOPPER.model_copy(update={"keeps_state": True, "snapshot_bytes": size})
    # For the round, with the trajectory, and for the next round.
    left = round_bytes(spec, kept) - round_bytes(reset, kept)
    assert left == 3 * counted * 64 * spec.actors.max
    assert round_bytes(spec, HOPPER) == round_bytes(reset, HOPPER)
    # Nothing else of these trajectories is near the limit.
    observation = ObservationSpec(shape=(1_000_000,), dtype="float32")
    large = kept.model_copy(update={"observation": observation})
    longer = spec.model_copy(update={"envs_per_actor": 22, "steps_per_actor": 22})
    assert not [*trajectory_errors(longer.model_copy(update={"episodes": reset.episodes}), large)]
    assert bool([*trajectory_errors(longer, large)]) is (size == 2**18)


QBERT = JobSpec.model_validate(
    {"env_id": "ALE/Qbert-v5", "preset": "standard", "steps_per_actor": 99, "actors": {"max": 10}}
)


def qbert(frame_stack: int | None) -> EnvironmentSpec:
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
    assert round_bytes(QBERT, qbert(4)) == steps * (frame + rest) + 2 * weights
    assert round_bytes(QBERT, qbert(None)) == steps * (4 * frame + rest) + 2 * weights


def test_a_fragment_that_no_learner_would_take_in_is_refused() -> None:
    assert codec.DEFAULT_MAX_BYTES == MAX_TRAJECTORY_BYTES
    most = MAX_TRAJECTORY_BYTES // (4 * 84 * 84) - 1
    fits = QBERT.model_copy(update={"steps_per_actor": most})
    assert not [*trajectory_errors(fits, qbert(4))]
    larger = QBERT.model_copy(update={"steps_per_actor": most + 1})
    (error,) = trajectory_errors(larger, qbert(4))
    assert error.field == "steps_per_actor"
    assert "of 9510 steps may have 256.0 MB, the learner accepts 256 MB" in error.message
    # Every tenth step ends an episode, and brings its final observation.
    limited = qbert(4).model_copy(update={"max_episode_steps": 10})
    (error,) = trajectory_errors(fits, limited)
    assert "may have 281.5 MB" in error.message


def _warnings(*, images: bool, most: int, node: str | None) -> tuple[str, ...]:
    spec = JobSpec.model_validate(
        {"env_id": "ALE/Pong-v5" if images else "Hopper-v5", "actors": {"min": 1, "max": most}}
    )
    job = Job(job_id="job-1", spec=spec, status="checking", created_at=0)
    return admitted(job, IMAGES if images else HOPPER, node).warnings


def test_a_job_whose_weights_a_small_node_sends_slowly_is_told_which_node_suits() -> None:
    weights_mb = 4e-6 * network_weights(JobSpec(env_id="ALE/Pong-v5"), IMAGES)
    (warning,) = _warnings(images=True, most=16, node="cache.t4g.micro")
    assert f"16 actors fetch {16 * weights_mb:.0f} MB of weights a round" in warning
    assert f"takes {16 * weights_mb / 8:.0f} s at the 8 MB/s" in warning
    suits = warning.partition(": use ")[2].partition(" ")[0]
    assert 16 * weights_mb / network_mb_per_s(suits) <= 5
    assert _warnings(images=True, most=16, node=suits) == ()


def test_half_the_precision_is_half_the_traffic() -> None:
    spec = JobSpec.model_validate({"env_id": "ALE/Pong-v5", "actors": {"min": 1, "max": 64}})
    halved = spec.model_copy(update={"policy_precision": "float16"})
    (whole,) = traffic_warnings(spec, IMAGES, "cache.t4g.micro")
    (half,) = traffic_warnings(halved, IMAGES, "cache.t4g.micro")
    takes_s = [float(text.partition("takes ")[2].partition(" s")[0]) for text in (whole, half)]
    assert takes_s[1] == pytest.approx(takes_s[0] / 2, abs=0.6)


@pytest.mark.parametrize(
    ("images", "most", "node"),
    [(False, 64, "cache.t4g.micro"), (True, 64, None), (True, 1, "cache.r7g.large")],
)
def test_nothing_is_said_where_it_is_fast_or_not_on_aws(
    images: bool, most: int, node: str | None
) -> None:
    assert _warnings(images=images, most=most, node=node) == ()


def test_where_no_node_suffices_the_fastest_one_is_named() -> None:
    assert node_for_traffic(10_000) == "cache.r7g.large"
    assert node_for_traffic(8.0) == "cache.t4g.micro"
    assert node_for_traffic(8.1) == "cache.t4g.small"
