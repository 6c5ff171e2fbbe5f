"""A replay is refused at admission by its full size, which is that of the learner's own ring."""

import pytest

from learning.algorithms.replay_learner import ReplayLearner
from learning.algorithms.sac import Crossq, Sac
from services.scaler.jobs.replay import (
    LearnerMemory,
    numbers_per_step,
    replay_errors,
    warm_up_warnings,
)
from shared.contracts.environment_spec import (
    ContinuousActionSpec,
    EnvironmentSpec,
    ObservationSpec,
)
from shared.contracts.job_spec import JobSpec
from shared.contracts.learner_kind import LearnerKind
from shared.contracts.stop_rule import MAX_ROUNDS
from shared.hyperparameters import crossq, sac
from shared.hyperparameters.replay import ReplayHyperparameters

HUMANOID = EnvironmentSpec(
    env_id="Humanoid-v4",
    observation=ObservationSpec(shape=(376,), dtype="float32"),
    action=ContinuousActionSpec(low=(-0.4,) * 17, high=(0.4,) * 17),
    max_episode_steps=1000,
    versions={},
)
STEP_BYTES = 4 * (376 + 376 + 17 + 2)
FARGATE = LearnerMemory(cpu_mib=4096, gpu_mib=24_576, on_aws=True)
LAPTOP = LearnerMemory(cpu_mib=8192, gpu_mib=8192, on_aws=False)


def told(
    memory: LearnerMemory | None, learner: LearnerKind = "cpu", **fields: object
) -> dict[str, str]:
    job: dict[str, object] = {"env_id": "Humanoid-v4", "algorithm": "sac", "preset": "standard"}
    job["stop"] = {"max_rounds": MAX_ROUNDS}
    spec = JobSpec.model_validate(job | {"scaling": {"policy": "fixed"}} | fields)
    return {e.field: e.message for e in replay_errors(spec, HUMANOID, learner, memory)}


def test_a_million_steps_of_humanoid_fit_the_default_task_and_larger_replays_do_not() -> None:
    assert not told(FARGATE)
    room_mb = 4096 * 1024**2 // 10**6 - 1000
    large = {"replay_capacity": 10_000_000}
    assert not told(FARGATE, hyperparameters=large | {"replay_mb": room_mb})
    (message,) = told(FARGATE, hyperparameters=large | {"replay_mb": 1_000_000}).values()
    assert message == (
        "the replay of 10,000,000 steps of Humanoid-v4 takes 30,840 MB, and the learner has "
        "4,295 MB, 1,000 of them for itself: set it to 3294 or lower, or give learner_task a cpu "
        "and memory_mb"
    )


@pytest.mark.parametrize(
    ("memory", "learner", "fits_mb", "remedy"),
    [
        (FARGATE, "cpu", 3294, "learner_task"),
        (FARGATE, "gpu", 24_769, "learner_memory_mb"),
        (LAPTOP, "cpu", 7589, "a machine with more memory"),
        (LAPTOP, "gpu", 7589, "a machine with more memory"),
    ],
)
def test_the_last_replay_that_fits_is_admitted(
    memory: LearnerMemory, learner: LearnerKind, fits_mb: int, remedy: str
) -> None:
    def of(replay_mb: int) -> dict[str, str]:
        sizes = {"replay_capacity": 10_000_000, "replay_mb": replay_mb}
        return told(memory, learner, hyperparameters=sizes)

    assert not of(fits_mb)
    message = of(fits_mb + 1)["hyperparameters.replay_mb"]
    assert f"set it to {fits_mb} or lower" in message
    assert remedy in message


def test_a_task_of_the_jobs_own_counts_on_aws_alone() -> None:
    sizes = {"replay_capacity": 10_000_000, "replay_mb": 12_000}
    task = {"cpu": 2, "memory_mb": 16_384}
    assert not told(FARGATE, hyperparameters=sizes, learner_task=task)
    refused = told(LAPTOP, hyperparameters=sizes, learner_task=task)
    assert "a machine with more memory" in refused["hyperparameters.replay_mb"]


def test_without_a_replay_or_a_known_memory_nothing_is_refused() -> None:
    huge = {"replay_capacity": 10_000_000, "replay_mb": 1_000_000}
    assert not told(None, hyperparameters=huge)
    assert not told(FARGATE, "external", hyperparameters=huge)
    assert not told(FARGATE, algorithm="ppo")


def test_a_short_job_needs_the_memory_of_its_own_steps() -> None:
    small = LearnerMemory(cpu_mib=2048, gpu_mib=2048, on_aws=False)
    assert told(small)
    assert not told(small, stop={"max_rounds": MAX_ROUNDS, "max_env_steps": 100_000})


def test_a_task_too_small_for_any_replay_says_only_what_helps() -> None:
    tiny = LearnerMemory(cpu_mib=512, gpu_mib=512, on_aws=False)
    (message,) = told(tiny).values()
    assert message.endswith("for itself: use a machine with more memory")


@pytest.mark.parametrize(("kind", "rule"), [(Sac, sac.STANDARD), (Crossq, crossq.STANDARD)])
def test_it_is_the_size_of_the_learners_ring(
    kind: type[ReplayLearner], rule: ReplayHyperparameters
) -> None:
    learner = kind(HUMANOID, rule.model_copy(update={"replay_capacity": 10}), seed=1)
    assert 4 * numbers_per_step(HUMANOID) == 4 * learner.replay.width == STEP_BYTES


@pytest.mark.parametrize(
    ("stop", "warned"),
    [
        ({"max_rounds": 19}, True),  # 4,864 steps
        ({"max_rounds": 20}, False),
        ({"max_rounds": 99, "max_env_steps": 4000}, True),
        ({"max_rounds": 99, "max_env_steps": 5000}, False),
    ],
)
def test_a_job_that_ends_before_its_first_gradient_step_is_warned(
    stop: dict[str, int], warned: bool
) -> None:
    job = {"env_id": "Humanoid-v4", "algorithm": "sac", "steps_per_actor": 32, "stop": stop}
    job |= {"actors": {"min": 1, "max": 16}, "scaling": {"policy": "fixed", "num_actors": 8}}
    rule = {"hyperparameters": {"learning_starts": 5000}}
    warnings = warm_up_warnings(JobSpec.model_validate(job | rule), HUMANOID)
    assert any("learning_starts is 5,000" in text for text in warnings) == warned
