"""A job's specification becomes the algorithm that trains it."""

import pytest
import torch

from learning.algorithms.ars import Ars
from learning.algorithms.es import Es
from learning.algorithms.impact import Impact
from learning.algorithms.impala import Impala
from learning.algorithms.on_policy import OnPolicy
from learning.algorithms.ppo import Ppo
from learning.algorithms.registry import BUILDERS, build_algorithm
from learning.algorithms.sac import Crossq, Sac
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
    [("ppo", Ppo), ("impact", Impact), ("impala", Impala)],
)
@pytest.mark.parametrize("preset", ["paper", "standard"])
def test_each_algorithm_is_built_by_its_name(algorithm: str, kind: type, preset: str) -> None:
    made = build_algorithm(job(algorithm=algorithm, preset=preset), device=torch.device("cpu"))
    assert isinstance(made, kind)


@pytest.mark.parametrize(
    ("algorithm", "kind"), [("sac", Sac), ("crossq", Crossq), ("ars", Ars), ("es", Es)]
)
def test_so_is_each_algorithm_that_measures_nothing(algorithm: str, kind: type) -> None:
    fixed = {"policy": "fixed", "num_actors": 8}
    made = build_algorithm(
        job(algorithm=algorithm, preset="standard", scaling=fixed), device=torch.device("cpu")
    )
    assert type(made) is kind


def test_rounds_of_what_learns_on_policy_never_overlap() -> None:
    assert job(algorithm="ppo", rounds_in_flight=4).spec.open_rounds == 1
    assert job(algorithm="impala", rounds_in_flight=4).spec.open_rounds == 4


def test_what_is_declared_of_an_algorithm_is_what_it_is() -> None:
    assert BUILDERS.keys() == ALGORITHMS.keys()
    kinds = {
        name: isinstance(build, type) and issubclass(build, OnPolicy)
        for name, build in BUILDERS.items()
    }
    assert kinds == {name: traits.on_policy for name, traits in ALGORITHMS.items()}
