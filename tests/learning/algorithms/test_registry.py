"""A job's specification becomes the algorithm that trains it."""

import pytest
import torch

from learning.algorithms.off_policy import OffPolicyLearner
from learning.algorithms.ppo import Ppo
from learning.algorithms.registry import (
    OFF_POLICY,
    ON_POLICY,
    build_algorithm,
    build_off_policy_algorithm,
)
from learning.algorithms.whole_rounds import WholeRounds
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.hyperparameters.presets import ALGORITHMS
from tests.learning.trajectories import CONTINUOUS


def job(**spec: object) -> Job:
    return Job(
        job_id="job",
        spec=JobSpec.model_validate(spec),
        environment=CONTINUOUS,
        status="running",
        created_at=0.0,
    )


def test_overrides_reach_the_network_and_the_seed_decides_the_weights() -> None:
    cpu = torch.device("cpu")
    overrides = {"hidden_sizes": (4,), "log_std": "free"}
    arrays, metadata = build_algorithm(
        job(hyperparameters=overrides, seed=3), device=cpu
    ).policy_payload()
    assert arrays["policy.0.weight"].shape == (4, 5)
    assert metadata["log_std"] == "free"
    again, _ = build_algorithm(job(hyperparameters=overrides, seed=3), device=cpu).policy_payload()
    other, _ = build_algorithm(job(hyperparameters=overrides, seed=4), device=cpu).policy_payload()
    assert arrays["policy.0.weight"].tobytes() == again["policy.0.weight"].tobytes()
    assert arrays["policy.0.weight"].tobytes() != other["policy.0.weight"].tobytes()


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [("ppo", Ppo), ("impact", WholeRounds), ("impala", WholeRounds)],
)
@pytest.mark.parametrize("preset", ["paper", "standard"])
def test_each_algorithm_is_built_for_rounds_one_after_the_other(
    algorithm: str, kind: type, preset: str
) -> None:
    made = build_algorithm(job(algorithm=algorithm, preset=preset), device=torch.device("cpu"))
    assert isinstance(made, kind)


@pytest.mark.parametrize("algorithm", ["impact", "impala"])
def test_off_policy_algorithms_are_built_for_overlapping_rounds(algorithm: str) -> None:
    made = build_off_policy_algorithm(job(algorithm=algorithm), device=torch.device("cpu"))
    assert isinstance(made, OffPolicyLearner)


def test_ppo_cannot_learn_from_overlapping_rounds() -> None:
    with pytest.raises(ValueError, match="ppo learns on-policy"):
        build_off_policy_algorithm(job(algorithm="ppo"), device=torch.device("cpu"))


def test_what_is_declared_of_an_algorithm_is_what_it_is() -> None:
    declared = {name: traits.on_policy for name, traits in ALGORITHMS.items()}
    assert declared == dict.fromkeys(ON_POLICY, True) | dict.fromkeys(OFF_POLICY, False)
