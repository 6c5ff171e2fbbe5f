"""The hyper-parameters of a job are those it was submitted with, whatever becomes of its preset."""

import json
from typing import Literal

import pytest
from pydantic import ValidationError

from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, resolve_for
from shared.hyperparameters.presets import Preset, complete_sets
from tests.services.scaler.lambda_endpoint import HOPPER, IMAGES


def _job(spec: JobSpec, environment: EnvironmentSpec = HOPPER, **more: object) -> Job:
    return Job.model_validate(
        {
            "job_id": "hopper-v5-0",
            "spec": spec,
            "environment": environment,
            "status": "stopped",
            "created_at": 0.0,
            **more,
        }
    )


@pytest.mark.parametrize("environment", [HOPPER, IMAGES], ids=["vectors", "images"])
@pytest.mark.parametrize("preset", ["paper", "standard"])
@pytest.mark.parametrize("algorithm", ["ppo", "impact", "impala"])
def test_what_was_resolved_survives_storing(
    algorithm: Literal["ppo", "impact", "impala"], preset: Preset, environment: EnvironmentSpec
) -> None:
    presets = complete_sets()
    if environment is IMAGES:
        presets |= complete_sets(images=True)
    spec = JobSpec(algorithm=algorithm, preset=preset, hyperparameters={"hidden_sizes": (8, 8)})
    resolved = resolve_for(spec, environment)
    assert resolved == presets[algorithm, preset].model_copy(update={"hidden_sizes": (8, 8)})
    job = _job(spec, environment, full_hyperparameters=resolved.model_dump())
    again = Job.model_validate_json(job.model_dump_json())
    assert again == job
    assert again.hyperparameters == resolved
    kinds = {name: type(value) for name, value in resolved.model_dump().items()}
    assert {n: type(v) for n, v in again.hyperparameters.model_dump().items()} == kinds


def test_a_job_of_before_there_was_a_choice_has_a_gpu() -> None:
    stored = _job(JobSpec(preset="standard")).model_dump()
    del stored["learner"], stored["spec"]["learner"]
    job = Job.read(json.dumps(stored, default=list).encode())
    assert (job.learner, job.spec.learner) == ("gpu", None)


def test_a_preset_that_has_changed_since_changes_no_job() -> None:
    spec = JobSpec(algorithm="impala", preset="standard")
    before = complete_sets()["impala", "standard"].model_copy(update={"learning_rate": 7e-4})
    job = _job(spec, full_hyperparameters=before.model_dump())
    assert job.hyperparameters == before


def test_a_job_whose_values_the_present_preset_forbids_is_read_and_trains() -> None:
    """Was the preset without `kl_target` when the job was submitted, a decay was allowed."""
    spec = JobSpec(
        algorithm="impala", preset="standard", hyperparameters={"learning_rate_decay": "linear"}
    )
    with pytest.raises(ValueError, match="kl_target would undo"):
        resolve_for(spec, HOPPER)
    before = complete_sets()["impala", "standard"].model_copy(
        update={"learning_rate_decay": "linear", "kl_target": 0.0}
    )
    stored = _job(spec, full_hyperparameters=before.model_dump()).model_dump_json()
    assert Job.model_validate_json(stored).hyperparameters == before


def test_a_bound_that_no_new_job_may_have_is_read_and_trained_with() -> None:
    spec = JobSpec(hyperparameters={"reward_clip": 1e39})
    with pytest.raises(ValidationError, match="reward_clip"):
        resolve_for(spec, HOPPER)
    before = complete_sets()["ppo", "paper"].model_copy(update={"reward_clip": 1e39})
    stored = _job(spec, full_hyperparameters=before.model_dump()).model_dump_json()
    assert Job.model_validate_json(stored).hyperparameters == before


def test_a_job_from_before_they_were_kept_trains_with_its_preset() -> None:
    assert _job(JobSpec(preset="standard")).hyperparameters == complete_sets()["ppo", "standard"]


@pytest.mark.parametrize(
    ("preset", "environment", "chosen", "expected"),
    [
        ("standard", HOPPER, None, 1),
        ("paper", IMAGES, None, 1),
        ("standard", IMAGES, None, 4),
        ("standard", IMAGES, 1, 1),
        ("paper", HOPPER, 3, 3),
    ],
)
def test_images_of_short_updates_are_measured_less_often(
    preset: Preset, environment: EnvironmentSpec, chosen: int | None, expected: int
) -> None:
    detector = {"every_rounds": chosen}
    spec = JobSpec.model_validate({"preset": preset, "detector": detector})
    assert _job(spec, environment).measures_every_rounds == expected
