"""The detector's measurement against the exact Hessian's spectrum, and what it leaves alone."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from services.learner import curvature
from services.learner.batch import TrainingBatch, build_batch
from services.learner.curvature import LossTerms, measure_curvature
from services.learner.lanczos import LanczosResult, extreme_eigenvalues
from services.learner.mlp_network import MlpActorCritic
from services.learner.sample_choice import chosen_samples, evenly_spread
from services.learner.surrogate import policy_surrogate
from services.learner.trajectory_noise import noise_choice, noise_shares
from shared.environment_spec import EnvironmentSpec
from shared.job_spec import DetectorRule
from shared.ppo_hyperparameters import PpoHyperparameters
from tests.services.learner.test_surrogate import (
    CASES,
    autograd_hessian,
    network_of,
    surrogate_log_prob,
)
from tests.services.learner.test_total_loss import negative_loss_hessian
from tests.services.learner.trajectories import CONTINUOUS, make_trajectory

HYPERPARAMETERS = PpoHyperparameters(hidden_sizes=(6, 5))


def loss_of(hyperparameters: PpoHyperparameters) -> LossTerms:
    return LossTerms(hyperparameters=hyperparameters, kl_coefficient=0.2)


def round_of(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters
) -> tuple[MlpActorCritic, TrainingBatch]:
    network = network_of(environment, hyperparameters, torch.float32)
    trajectories = [make_trajectory(environment, network, actor_index=i) for i in range(3)]
    return network, build_batch(trajectories, network, discount=0.99, gae_lambda=1.0)


@pytest.mark.parametrize(("environment", "hyperparameters"), CASES)
@pytest.mark.parametrize("sampling", ["proportional", "even"])
@pytest.mark.parametrize("num_samples", [50, 10_000])
def test_eigenvalues_within_one_percent_of_the_exact_hessian(
    environment: EnvironmentSpec,
    hyperparameters: PpoHyperparameters,
    num_samples: int,
    sampling: str,
) -> None:
    network, batch = round_of(environment, hyperparameters)
    rule = DetectorRule.model_validate({"num_samples": num_samples, "sampling": sampling})
    found = measure_curvature(network, batch, rule=rule)
    chosen, weights = chosen_samples(batch, rule, network.distribution)
    advantage = batch.advantage[chosen] * weights
    exact = torch.linalg.eigvalsh(
        autograd_hessian(network, batch.observation[chosen], batch.action[chosen], advantage)
    )
    assert found is not None
    assert found.lambda_max == pytest.approx(exact[-1].item(), rel=0.01)
    assert found.lambda_min == pytest.approx(exact[0].item(), rel=0.01)
    assert found.residual <= 0.01
    assert found.num_samples == len(chosen)
    assert 2 <= found.matvecs <= 40
    assert found.elapsed_s > 0


def moved(network: MlpActorCritic, *, by: float = 0.3) -> None:
    """Move a network away from the policy its samples were made by, as an update does."""
    generator = torch.Generator().manual_seed(3)
    network.flat.add_(torch.randn(network.flat.shape, generator=generator), alpha=by)


def behaviour_hessian(network: MlpActorCritic, batch: TrainingBatch, *, clip: float) -> Tensor:
    """Hessian of PPO's clipped surrogate, ratios to the policy that sampled, by autograd."""
    log_prob, point = surrogate_log_prob(network, batch.observation, batch.action)
    advantage, old = batch.advantage.double(), batch.log_prob.double()

    def objective(flat: Tensor) -> Tensor:
        ratio = torch.exp(log_prob(flat) - old)
        clipped = ratio.clamp(1 - clip, 1 + clip)
        return torch.minimum(advantage * ratio, advantage * clipped).mean()

    hessian: Tensor = torch.autograd.functional.hessian(  # type: ignore[no-untyped-call]
        objective, point
    )
    return hessian


@pytest.mark.parametrize(("environment", "hyperparameters"), CASES)
def test_the_behaviour_objective_is_ppos_clipped_surrogate(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters
) -> None:
    network, batch = round_of(environment, hyperparameters)
    moved(network)
    rule = DetectorRule(objective="behaviour", num_samples=10_000)
    found = measure_curvature(network, batch, rule=rule, loss=loss_of(hyperparameters))
    exact = torch.linalg.eigvalsh(behaviour_hessian(network, batch, clip=hyperparameters.clip))
    assert found is not None
    assert found.lambda_max == pytest.approx(exact[-1].item(), rel=0.01)
    assert found.lambda_min == pytest.approx(exact[0].item(), rel=0.01)


def test_at_the_policy_that_sampled_both_ratios_are_one() -> None:
    network, batch = round_of(CONTINUOUS, HYPERPARAMETERS)
    loss = loss_of(HYPERPARAMETERS)
    first, second = (
        measure_curvature(network, batch, rule=DetectorRule(objective=name), loss=loss)
        for name in ("surrogate", "behaviour")
    )
    assert first is not None
    assert second is not None
    assert second.lambda_max == pytest.approx(first.lambda_max, rel=1e-4)
    assert second.lambda_min == pytest.approx(first.lambda_min, rel=1e-4)


def test_the_total_loss_is_measured_over_all_parameters() -> None:
    network, batch = round_of(CONTINUOUS, HYPERPARAMETERS)
    moved(network)
    rule = DetectorRule(objective="total_loss", num_samples=10_000, tolerance=1e-3)
    found = measure_curvature(network, batch, rule=rule, loss=loss_of(HYPERPARAMETERS))
    exact = torch.linalg.eigvalsh(
        negative_loss_hessian(network, batch, HYPERPARAMETERS, kl_coefficient=0.2)
    )
    assert found is not None
    assert found.lambda_max == pytest.approx(exact[-1].item(), rel=0.01)
    assert found.lambda_min == pytest.approx(exact[0].item(), rel=0.01)


@pytest.mark.parametrize("objective", ["behaviour", "total_loss"])
def test_an_objective_the_algorithm_does_not_have_is_refused(objective: str) -> None:
    network, batch = round_of(CONTINUOUS, HYPERPARAMETERS)
    rule = DetectorRule.model_validate({"objective": objective})
    with pytest.raises(ValueError, match=f"'{objective}', which is defined for ppo only"):
        measure_curvature(network, batch, rule=rule)


def test_more_probes_never_narrow_the_spectrum() -> None:
    network, batch = round_of(CONTINUOUS, HYPERPARAMETERS)
    rules = [DetectorRule(probes=n, max_matvecs=4, tolerance=1e-6) for n in (1, 2, 4)]
    found = [measure_curvature(network, batch, rule=rule) for rule in rules]
    known = [one for one in found if one is not None]
    assert [one.matvecs for one in known] == [4, 8, 16]
    assert known[0].lambda_max <= known[1].lambda_max <= known[2].lambda_max
    assert known[0].lambda_min >= known[1].lambda_min >= known[2].lambda_min


def test_gradient_noise_comes_with_the_curvature() -> None:
    network, batch = round_of(CONTINUOUS, HYPERPARAMETERS)
    found = measure_curvature(network, batch, rule=DetectorRule())
    # 3 trajectories of 48 steps, of each of which 32 are compared
    steps = torch.cat([48 * i + evenly_spread(48, 32) for i in range(3)])
    log_prob, point = surrogate_log_prob(network, batch.observation[steps], batch.action[steps])
    jacobian: Tensor = torch.autograd.functional.jacobian(  # type: ignore[no-untyped-call]
        log_prob, point
    )
    gradients = batch.advantage[steps].double().unsqueeze(1) * jacobian
    big = gradients.mean(0).square().sum().item()
    small = [part.mean(0).square().sum().item() for part in torch.split(gradients, 32)]
    variance = (sum(small) / 3 - big) / (1 / 32 - 1 / 96)
    assert found is not None
    assert found.gradient_noise is not None
    assert found.gradient_noise.variance == pytest.approx(variance, rel=1e-3)
    assert found.gradient_noise.squared_norm == pytest.approx(big - variance / 96, rel=1e-3)


@pytest.mark.parametrize("sampling", ["proportional", "even"])
@pytest.mark.parametrize("num_trajectories", [3, 4])
def test_how_the_curvature_is_measured_does_not_change_the_noise(
    num_trajectories: int, sampling: str
) -> None:
    hyperparameters = PpoHyperparameters(hidden_sizes=(256, 256))
    network = network_of(CONTINUOUS, hyperparameters, torch.float32)
    trajectories = [
        make_trajectory(CONTINUOUS, network, actor_index=i) for i in range(num_trajectories)
    ]
    batch = build_batch(trajectories, network, discount=0.99, gae_lambda=1.0)
    rule = DetectorRule.model_validate({"num_samples": 40, "max_matvecs": 3, "sampling": sampling})
    choice = noise_choice(batch, rule)
    alone = policy_surrogate(network, **choice.samples(batch)._asdict()).shares(num_trajectories)
    expected = choice.noise(alone)
    found = measure_curvature(network, batch, rule=rule)
    assert expected is not None
    assert found is not None
    assert found.gradient_noise is not None
    assert found.gradient_noise.variance == pytest.approx(expected.variance, rel=1e-4)
    assert found.gradient_noise.squared_norm == pytest.approx(expected.squared_norm, rel=1e-4)


def test_products_start_towards_the_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    network, batch = round_of(CONTINUOUS, HYPERPARAMETERS)
    leans: list[Tensor] = []

    def watched(*args: Any, lean: Tensor, **kwargs: Any) -> LanczosResult:
        leans.append(lean)
        return extreme_eigenvalues(*args, lean=lean, **kwargs)

    monkeypatch.setattr(curvature, "extreme_eigenvalues", watched)
    assert measure_curvature(network, batch, rule=DetectorRule(num_samples=10_000, probes=2))
    log_prob, point = surrogate_log_prob(network, batch.observation, batch.action)
    jacobian: Tensor = torch.autograd.functional.jacobian(  # type: ignore[no-untyped-call]
        log_prob, point
    )
    gradient = (batch.advantage.double().unsqueeze(1) * jacobian).mean(0)
    assert len(leans) == 2
    for lean in leans:
        torch.testing.assert_close(lean.double(), gradient, rtol=1e-3, atol=1e-6)


def test_more_actors_do_not_change_how_many_steps_of_each_are_compared() -> None:
    network = network_of(CONTINUOUS, HYPERPARAMETERS, torch.float32)
    trajectories = [make_trajectory(CONTINUOUS, network, actor_index=i) for i in range(40)]
    few, many = (
        build_batch(some, network, discount=0.99, gae_lambda=1.0)
        for some in (trajectories[:16], trajectories)
    )
    # Trajectories 0, 2, 5, ... of 40: as if the round had been of these 16 alone.
    chosen = evenly_spread(40, 16).tolist()
    alone = build_batch([trajectories[i] for i in chosen], network, discount=0.99, gae_lambda=1.0)
    alone = replace(alone, advantage=many.advantage.view(40, 48)[chosen].flatten())
    noise, of_these, of_others = (
        (choice := noise_choice(batch, DetectorRule())).noise(
            noise_shares(network, batch, choice, None)
        )
        for batch in (many, alone, few)
    )
    assert noise == of_these
    assert noise != of_others
    assert noise_choice(many, DetectorRule(num_trajectories=40)).num_trajectories == 16


def test_a_single_trajectory_has_curvature_but_no_gradient_noise() -> None:
    network, batch = round_of(CONTINUOUS, HYPERPARAMETERS)
    found = measure_curvature(network, batch, rule=DetectorRule(num_trajectories=1))
    assert found is not None
    assert found.gradient_noise is None


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


def test_without_advantages_the_whole_loss_curves_as_the_values_error_does() -> None:
    network, batch = round_of(CONTINUOUS, HYPERPARAMETERS)
    moved(network)
    flat_batch = replace(batch, advantage=torch.zeros_like(batch.advantage))
    rule = DetectorRule(objective="total_loss", num_samples=10_000, tolerance=1e-3)
    found = measure_curvature(network, flat_batch, rule=rule, loss=loss_of(HYPERPARAMETERS))
    hessian = negative_loss_hessian(network, flat_batch, HYPERPARAMETERS, kl_coefficient=0.2)
    exact = torch.linalg.eigvalsh(hessian)
    assert found is not None
    assert found.lambda_max == pytest.approx(exact[-1].item(), rel=0.01)
    assert found.lambda_min == pytest.approx(exact[0].item(), rel=0.01)


def test_a_diverged_policy_is_no_curvature() -> None:
    network, batch = round_of(CONTINUOUS, PpoHyperparameters(hidden_sizes=(6, 5)))
    network.flat[0] = float("nan")
    assert measure_curvature(network, batch, rule=DetectorRule()) is None
