"""The detector's measurement against the exact Hessian's spectrum, and what it leaves alone."""

from typing import Any

import pytest
import torch
from torch import Tensor

from learning.data.batch import picked
from learning.data.batch_building import on_policy_batch
from learning.detectors import hessian as hessian_detector
from learning.detectors.detector import PolicySamples
from learning.detectors.gradient_noise import trajectory_noise
from learning.detectors.hessian import HessianDetector
from learning.detectors.lanczos import LanczosResult, extreme_eigenvalues
from learning.detectors.sample_choice import chosen_samples, evenly_spread
from learning.losses.loss_terms import LossRule
from learning.losses.ppo import PpoRule
from learning.networks.actor_critic import ActorCritic
from learning.networks.mlp_network import MlpActorCritic
from shared.contracts.detector_rule import DetectorRule
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.rounds import Curvature
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.trajectory.columns import Columns
from tests.learning.detectors import test_surrogate_conv
from tests.learning.detectors.test_surrogate import (
    CASES,
    autograd_hessian,
    network_of,
    surrogate_log_prob,
)
from tests.learning.trajectories import CONTINUOUS, make_trajectory

HYPERPARAMETERS = PpoHyperparameters(hidden_sizes=(6, 5))


def loss_of(hyperparameters: PpoHyperparameters) -> PpoRule:
    return PpoRule(hyperparameters=hyperparameters, kl_coefficient=0.2)


def measured(
    network: ActorCritic,
    batch: Columns[Tensor],
    *,
    rule: DetectorRule,
    loss: LossRule | None = None,
) -> Curvature | None:
    return HessianDetector(rule).measure(network, PolicySamples(batch=batch, rule=loss))


def negative_loss_hessian(
    network: ActorCritic, batch: Columns[Tensor], hyperparameters: PpoHyperparameters
) -> Tensor:
    """Hessian of minus PPO's loss by all parameters in their order, by autograd in float64."""
    named = {name: p.detach().double() for name, p in network.named_parameters()}
    exact = picked(batch, torch.arange(batch.num_samples))
    exact = exact.replaced(
        **{name: a.double() for name, a in exact.arrays.items() if a.is_floating_point()}
    )

    def objective(flat: Tensor) -> Tensor:
        parts = torch.split(flat, [p.numel() for p in named.values()])
        values = {name: p.view(named[name].shape) for name, p in zip(named, parts, strict=True)}
        outputs = network.outputs_at(values, exact.observation)
        value = network.values_at(values, exact.observation)
        return -loss_of(hyperparameters).loss(outputs, value, exact, network.distribution)

    hessian: Tensor = torch.autograd.functional.hessian(  # type: ignore[no-untyped-call]
        objective, torch.cat([p.flatten() for p in named.values()])
    )
    return hessian


def round_of(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters
) -> tuple[MlpActorCritic, Columns[Tensor]]:
    network = network_of(environment, hyperparameters, torch.float32)
    trajectories = [make_trajectory(environment, network, actor_index=i) for i in range(3)]
    return network, on_policy_batch(trajectories, network, discount=0.99, gae_lambda=1.0)


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
    found = measured(network, batch, rule=rule)
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


def behaviour_hessian(network: MlpActorCritic, batch: Columns[Tensor], *, clip: float) -> Tensor:
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
    found = measured(network, batch, rule=rule, loss=loss_of(hyperparameters))
    exact = torch.linalg.eigvalsh(behaviour_hessian(network, batch, clip=hyperparameters.clip))
    assert found is not None
    assert found.lambda_max == pytest.approx(exact[-1].item(), rel=0.01)
    assert found.lambda_min == pytest.approx(exact[0].item(), rel=0.01)


def test_at_the_policy_that_sampled_both_ratios_are_one() -> None:
    network, batch = round_of(CONTINUOUS, HYPERPARAMETERS)
    loss = loss_of(HYPERPARAMETERS)
    first, second = (
        measured(network, batch, rule=DetectorRule(objective=name), loss=loss)
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
    found = measured(network, batch, rule=rule, loss=loss_of(HYPERPARAMETERS))
    exact = torch.linalg.eigvalsh(negative_loss_hessian(network, batch, HYPERPARAMETERS))
    assert found is not None
    assert found.lambda_max == pytest.approx(exact[-1].item(), rel=0.01)
    assert found.lambda_min == pytest.approx(exact[0].item(), rel=0.01)


@pytest.mark.parametrize("objective", ["behaviour", "total_loss"])
def test_an_objective_the_algorithm_does_not_have_is_refused(objective: str) -> None:
    network, batch = round_of(CONTINUOUS, HYPERPARAMETERS)
    rule = DetectorRule.model_validate({"objective": objective})
    with pytest.raises(ValueError, match=f"'{objective}', which is defined for ppo only"):
        measured(network, batch, rule=rule)


def test_more_probes_never_narrow_the_spectrum() -> None:
    network, batch = round_of(CONTINUOUS, HYPERPARAMETERS)
    rules = [DetectorRule(probes=n, max_matvecs=4, tolerance=1e-6) for n in (1, 2, 4)]
    found = [measured(network, batch, rule=rule) for rule in rules]
    known = [one for one in found if one is not None]
    assert [one.matvecs for one in known] == [4, 8, 16]
    assert known[0].lambda_max <= known[1].lambda_max <= known[2].lambda_max
    assert known[0].lambda_min >= known[1].lambda_min >= known[2].lambda_min


def test_gradient_noise_comes_with_the_curvature() -> None:
    network, batch = round_of(CONTINUOUS, HYPERPARAMETERS)
    found = measured(network, batch, rule=DetectorRule())
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


def test_how_the_curvature_is_measured_does_not_change_the_noise() -> None:
    network, batch = round_of(CONTINUOUS, HYPERPARAMETERS)
    rules = [DetectorRule(), DetectorRule(num_samples=40, max_matvecs=3, sampling="even")]
    first, second = (measured(network, batch, rule=rule) for rule in rules)
    assert first is not None
    assert second is not None
    assert first.gradient_noise == second.gradient_noise == trajectory_noise(network, batch)


def test_products_start_towards_the_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    network, batch = round_of(CONTINUOUS, HYPERPARAMETERS)
    leans: list[Tensor] = []

    def watched(*args: Any, lean: Tensor, **kwargs: Any) -> LanczosResult:
        leans.append(lean)
        return extreme_eigenvalues(*args, lean=lean, **kwargs)

    monkeypatch.setattr(hessian_detector, "extreme_eigenvalues", watched)
    assert measured(network, batch, rule=DetectorRule(num_samples=10_000, probes=2))
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
        on_policy_batch(some, network, discount=0.99, gae_lambda=1.0)
        for some in (trajectories[:16], trajectories)
    )
    # Trajectories 0, 2, 5, ... of 40: as if the round had been of these 16 alone.
    chosen = evenly_spread(40, 16).tolist()
    alone = on_policy_batch(
        [trajectories[i] for i in chosen], network, discount=0.99, gae_lambda=1.0
    )
    alone = alone.replaced(advantage=many.advantage.view(40, 48)[chosen].flatten())
    noise, of_these, of_others = (trajectory_noise(network, b) for b in (many, alone, few))
    assert noise == of_these == trajectory_noise(network, many, num_trajectories=40)
    assert noise != of_others


def test_a_single_trajectory_has_curvature_but_no_gradient_noise() -> None:
    network, batch = round_of(CONTINUOUS, HYPERPARAMETERS)
    found = measured(network, batch, rule=DetectorRule(num_trajectories=1))
    assert found is not None
    assert found.gradient_noise is None


def test_measuring_changes_nothing() -> None:
    network, batch = round_of(CONTINUOUS, PpoHyperparameters(hidden_sizes=(6, 5)))
    network.flat.grad = torch.ones_like(network.flat)
    flat, generator = network.flat.clone(), torch.get_rng_state()
    advantage = batch.advantage.clone()
    first = measured(network, batch, rule=DetectorRule())
    second = measured(network, batch, rule=DetectorRule())
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
    flat_batch = batch.replaced(advantage=torch.zeros_like(batch.advantage))
    assert measured(network, flat_batch, rule=DetectorRule()) is None


def test_without_advantages_the_whole_loss_curves_as_the_values_error_does() -> None:
    network, batch = round_of(CONTINUOUS, HYPERPARAMETERS)
    moved(network)
    flat_batch = batch.replaced(advantage=torch.zeros_like(batch.advantage))
    rule = DetectorRule(objective="total_loss", num_samples=10_000, tolerance=1e-3)
    found = measured(network, flat_batch, rule=rule, loss=loss_of(HYPERPARAMETERS))
    hessian = negative_loss_hessian(network, flat_batch, HYPERPARAMETERS)
    exact = torch.linalg.eigvalsh(hessian)
    assert found is not None
    assert found.lambda_max == pytest.approx(exact[-1].item(), rel=0.01)
    assert found.lambda_min == pytest.approx(exact[0].item(), rel=0.01)


def test_a_diverged_policy_is_no_curvature() -> None:
    network, batch = round_of(CONTINUOUS, PpoHyperparameters(hidden_sizes=(6, 5)))
    network.flat[0] = float("nan")
    assert measured(network, batch, rule=DetectorRule()) is None


@pytest.mark.parametrize("objective", ["surrogate", "behaviour", "total_loss"])
def test_convolutional_networks_have_every_objective_and_the_noise(objective: str) -> None:
    network, batch = test_surrogate_conv.batch_of(test_surrogate_conv.CASES[0])
    batch = batch.of_trajectories(2)
    rule = DetectorRule.model_validate({"objective": objective, "num_samples": 8})
    found = measured(network, batch, rule=rule, loss=loss_of(HYPERPARAMETERS))
    assert found is not None
    assert found.lambda_min < 0 < found.lambda_max
    assert found.gradient_noise is not None
    assert found.gradient_noise.variance > 0
