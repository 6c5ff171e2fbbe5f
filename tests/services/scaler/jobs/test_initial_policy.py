import pytest

from services.scaler.jobs.initial_policy import initial_policy_errors
from shared.contracts.environment_spec import DiscreteActionSpec, EnvironmentSpec, ObservationSpec
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from tests.services.scaler.lambda_endpoint import HOPPER

SPEC = JobSpec.model_validate({"preset": "standard", "init_from": {"job_id": "earlier"}})


def _earlier(
    environment: EnvironmentSpec | None = HOPPER, algorithm: str = "ppo", **changes: object
) -> Job:
    body = {"preset": "standard", "env_id": "Other-v0", "algorithm": algorithm}
    spec = JobSpec.model_validate({**body, "hyperparameters": changes})
    return Job(
        job_id="earlier", spec=spec, environment=environment, status="succeeded", created_at=0.0
    )


def _told(earlier: Job | None) -> list[str]:
    return [f"{e.field}: {e.message}" for e in initial_policy_errors(SPEC, HOPPER, earlier)]


def test_a_policy_of_the_same_size_is_taken_whatever_else_differs() -> None:
    assert _told(_earlier(learning_rate=1e-5)) == []
    plain = SPEC.model_copy(update={"init_from": None})
    assert [*initial_policy_errors(plain, HOPPER, None)] == []


@pytest.mark.parametrize("algorithm", ["impact", "impala"])
def test_a_policy_of_another_algorithm_is_taken(algorithm: str) -> None:
    assert _told(_earlier(algorithm=algorithm)) == []


@pytest.mark.parametrize(("earlier", "now"), [("ppo", "ars"), ("ars", "es"), ("es", "ppo")])
def test_searches_begin_with_policies_of_their_own_algorithm(earlier: str, now: str) -> None:
    spec = SPEC.model_copy(update={"algorithm": now})
    (error,) = initial_policy_errors(spec, HOPPER, _earlier(algorithm=earlier))
    assert f"earlier is of {earlier}, and this job of {now}" in error.message
    assert not [*initial_policy_errors(spec, HOPPER, _earlier(algorithm=now))]


def test_recurrent_cells_must_be_the_same_where_there_are_any() -> None:
    assert _told(_earlier(recurrent_units=7)) == []
    assert _told(_earlier(recurrent="gru", recurrent_units=7)) == [
        "init_from: earlier has recurrent cells gru [7], this job has none"
    ]


def test_what_does_not_fit_is_told_with_both_sizes() -> None:
    other = HOPPER.model_copy(
        update={
            "observation": HOPPER.observation.model_copy(update={"shape": (3, 2)}),
            "action": DiscreteActionSpec(n=4),
        }
    )
    assert _told(_earlier(other, hidden_sizes=[8])) == [
        "init_from: earlier has observations [6], this job has [11]",
        "init_from: earlier has actions {'kind': 'discrete', 'n': 4}, this job has continuous [3]",
        "init_from: earlier has hidden_sizes (8,), this job has (64, 64)",
    ]
    eyes = {"shape": (1500,), "dtype": "float32", "images": ((1, 36, 40),)}
    observing = HOPPER.model_copy(update={"observation": ObservationSpec.model_validate(eyes)})
    assert _told(_earlier(observing))[0] == (
        "init_from: earlier has observations [1500] of float32 that begin with images "
        "[[1, 36, 40]], this job has [11]"
    )
    assert _told(_earlier(activation="relu")) == [
        "init_from: earlier has activation relu, this job has tanh"
    ]
    assert _told(None) == ["init_from.job_id: there is no job earlier with a checkpoint here"]
    assert _told(_earlier(None)) == _told(None)
