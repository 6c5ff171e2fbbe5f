"""Hessian products of minus the total loss against autograd of the loss written out anew."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, Independent, Normal, kl_divergence

from services.learner.actor_critic import ActorCritic
from services.learner.algorithms.minibatch import Minibatch
from services.learner.batch import TrainingBatch, build_batch
from services.learner.total_loss import NegativeTotalLoss
from shared.environment_spec import EnvironmentSpec
from shared.ppo_hyperparameters import PpoHyperparameters
from tests.services.learner.test_surrogate import CASES, network_of
from tests.services.learner.trajectories import make_trajectory

KL_COEFFICIENT = 0.2


def distribution(outputs: Tensor, action: Tensor) -> Distribution:
    if action.dtype == torch.int64:
        return Categorical(logits=outputs)
    mean, log_std = outputs.chunk(2, dim=1)
    return Independent(Normal(mean, log_std.exp()), 1)


def negative_loss(
    network: ActorCritic,
    batch: TrainingBatch,
    hyperparameters: PpoHyperparameters,
    *,
    kl_coefficient: float,
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Of all parameters in their order, and those: with torch's own distributions, in float64."""
    named = {name: p.detach().double() for name, p in network.named_parameters()}
    sizes = [p.numel() for p in named.values()]
    action = batch.action if batch.action.dtype == torch.int64 else batch.action.double()
    observation, advantage = batch.observation.double(), batch.advantage.double()

    def run(part: str, values: dict[str, Tensor]) -> Tensor:
        h, count = observation, len(getattr(network, part))
        for i in range(count):
            h = h @ values[f"{part}.{i}.weight"].t() + values[f"{part}.{i}.bias"]
            h = torch.tanh(h) if i < count - 1 else h
        return h

    def objective(flat: Tensor) -> Tensor:
        parts = torch.split(flat, sizes)
        values = {name: p.view(named[name].shape) for name, p in zip(named, parts, strict=True)}
        outputs = run("policy", values)
        if "log_std" in values:
            outputs = torch.cat((outputs, values["log_std"].expand(len(outputs), -1)), dim=1)
        new, old = distribution(outputs, action), distribution(batch.outputs.double(), action)
        log_prob: Tensor = new.log_prob(action)
        entropy: Tensor = new.entropy()
        kl: Tensor = kl_divergence(old, new)
        ratio = torch.exp(log_prob - batch.log_prob.double())
        clip = hyperparameters.clip
        surrogate = torch.minimum(advantage * ratio, advantage * ratio.clamp(1 - clip, 1 + clip))
        error = (run("value", values).squeeze(1) - batch.value_target.double()) ** 2
        return (
            surrogate.mean()
            - hyperparameters.value_coefficient * error.clamp(max=hyperparameters.value_clip).mean()
            + hyperparameters.entropy_coefficient * entropy.mean()
            - kl_coefficient * kl.mean()
        )

    return objective, torch.cat([p.flatten() for p in named.values()])


def negative_loss_hessian(
    network: ActorCritic,
    batch: TrainingBatch,
    hyperparameters: PpoHyperparameters,
    *,
    kl_coefficient: float,
) -> Tensor:
    """Hessian of the same."""
    hessian: Tensor = torch.autograd.functional.hessian(  # type: ignore[no-untyped-call]
        *negative_loss(network, batch, hyperparameters, kl_coefficient=kl_coefficient)
    )
    return hessian


@pytest.mark.parametrize(("environment", "hyperparameters"), CASES)
def test_gradient_and_products_are_those_of_minus_the_loss(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters
) -> None:
    hyperparameters = hyperparameters.model_copy(update={"entropy_coefficient": 0.01})
    network = network_of(environment, hyperparameters, torch.float32)
    trajectories = [make_trajectory(environment, network, actor_index=i) for i in range(2)]
    batch = build_batch(trajectories, network, discount=0.99, gae_lambda=1.0)
    network.flat.mul_(1.1)  # after an update: ratios are not 1, some samples are clipped
    exact = negative_loss_hessian(network, batch, hyperparameters, kl_coefficient=KL_COEFFICIENT)
    loss = NegativeTotalLoss(
        network,
        Minibatch(
            observation=batch.observation,
            action=batch.action,
            advantage=batch.advantage,
            value_target=batch.value_target,
            log_prob=batch.log_prob,
            outputs=batch.outputs,
            value=batch.value,
        ),
        hyperparameters,
        kl_coefficient=KL_COEFFICIENT,
    )
    gradient: Tensor = torch.autograd.functional.jacobian(  # type: ignore[no-untyped-call]
        *negative_loss(network, batch, hyperparameters, kl_coefficient=KL_COEFFICIENT)
    )
    torch.testing.assert_close(loss.gradient().double(), gradient, rtol=1e-4, atol=1e-5)
    assert exact.shape == (loss.size, loss.size)
    columns = [loss.hessian_product(e) for e in torch.eye(loss.size)]
    error = torch.stack(columns, dim=1).double() - exact
    assert error.abs().max() <= 1e-5 * torch.linalg.matrix_norm(exact, 2)
    assert all(parameter.grad is None for parameter in network.parameters())
