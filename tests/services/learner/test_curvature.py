"""The detector's measurement against the exact Hessian's spectrum, and what it leaves alone."""

from dataclasses import replace

import pytest
import torch

from services.learner.batch import TrainingBatch, build_batch
from services.learner.curvature import evenly_spread, measure_curvature
from services.learner.networks import MlpActorCritic
from shared.environment_spec import EnvironmentSpec
from shared.job_spec import DetectorRule
from shared.ppo_hyperparameters import PpoHyperparameters
from tests.services.learner.test_surrogate import CASES, autograd_hessian, network_of
from tests.services.learner.trajectories import CONTINUOUS, make_trajectory


def round_of(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters
) -> tuple[MlpActorCritic, TrainingBatch]:
    network = network_of(environment, hyperparameters, torch.float32)
    trajectories = [make_trajectory(environment, network, actor_index=i) for i in range(3)]
    return network, build_batch(trajectories, network, discount=0.99, gae_lambda=1.0)


@pytest.mark.parametrize(("environment", "hyperparameters"), CASES)
@pytest.mark.parametrize("num_samples", [50, 10_000])
def test_eigenvalues_within_one_percent_of_the_exact_hessian(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters, num_samples: int
) -> None:
    network, batch = round_of(environment, hyperparameters)
    found = measure_curvature(network, batch, rule=DetectorRule(num_samples=num_samples))
    chosen = evenly_spread(batch.num_samples, num_samples)
    exact = torch.linalg.eigvalsh(
        autograd_hessian(
            network, batch.observation[chosen], batch.action[chosen], batch.advantage[chosen]
        )
    )
    assert found is not None
    assert found.lambda_max == pytest.approx(exact[-1].item(), rel=0.01)
    assert found.lambda_min == pytest.approx(exact[0].item(), rel=0.01)
    assert found.residual <= 0.01
    assert found.num_samples == len(chosen)
    assert 2 <= found.matvecs <= 40
    assert found.elapsed_s > 0


def test_measuring_changes_nothing() -> None:
    network, batch = round_of(CONTINUOUS, PpoHyperparameters(hidden_sizes=(6, 5)))
    network.flat.grad = torch.ones_like(network.flat)
    flat, generator = network.flat.clone(), torch.get_rng_state()
    advantage = batch.advantage.clone()
    first = measure_curvature(network, batch, rule=DetectorRule())
    second = measure_curvature(network, batch, rule=DetectorRule())
    assert torch.equal(network.flat, flat)
    assert torch.equal(network.flat.grad, torch.ones_like(flat))
    assert all(parameter.grad is None for parameter in network.parameters())
    assert torch.equal(torch.get_rng_state(), generator)
    assert torch.equal(batch.advantage, advantage)
    assert first is not None
    assert second is not None
    assert first.model_copy(update={"elapsed_s": second.elapsed_s}) == second


def test_no_advantage_anywhere_is_no_curvature() -> None:
    network, batch = round_of(CONTINUOUS, PpoHyperparameters(hidden_sizes=(6, 5)))
    flat_batch = replace(batch, advantage=torch.zeros_like(batch.advantage))
    assert measure_curvature(network, flat_batch, rule=DetectorRule()) is None


def test_a_diverged_policy_is_no_curvature() -> None:
    network, batch = round_of(CONTINUOUS, PpoHyperparameters(hidden_sizes=(6, 5)))
    network.flat[0] = float("nan")
    assert measure_curvature(network, batch, rule=DetectorRule()) is None


@pytest.mark.parametrize(("available", "wanted"), [(4096, 512), (100, 7), (5, 5), (5, 9), (1, 1)])
def test_samples_are_distinct_and_evenly_spread(available: int, wanted: int) -> None:
    chosen = evenly_spread(available, wanted).tolist()
    assert len(chosen) == len(set(chosen)) == min(available, wanted)
    assert chosen[0] == 0
    assert chosen[-1] < available
    gaps = [b - a for a, b in zip(chosen, chosen[1:], strict=False)]
    assert not gaps or max(gaps) - min(gaps) <= 1
