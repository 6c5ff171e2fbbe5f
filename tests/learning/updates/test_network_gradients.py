"""Whole gradients, by whichever source, against autograd of the loss that defines them."""

import numpy as np
import pytest
import torch
from torch import Tensor

from learning.data.batch import picked
from learning.data.batch_building import on_policy_batch
from learning.detectors.surrogate import leaves
from learning.losses.impact import ImpactRule
from learning.losses.impala import ImpalaRule
from learning.losses.loss_terms import LossRule, stat_names
from learning.losses.ppo import PpoRule
from learning.networks.actor_critic import ActorCritic
from learning.networks.building import build_network
from learning.updates.gradient import Gradient
from learning.updates.network_gradients import NetworkGradients
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.impact import STANDARD as IMPACT
from shared.hyperparameters.impala import STANDARD as IMPALA
from shared.hyperparameters.ppo import STANDARD, PpoHyperparameters
from shared.trajectory.columns import Columns
from tests.learning.detectors import test_surrogate_conv as conv
from tests.learning.trajectories import CONTINUOUS, DISCRETE, make_trajectory

WITH_ENTROPY = {"entropy_coefficient": 0.01}
RULES: dict[str, LossRule] = {
    "ppo, bounded error": PpoRule(
        hyperparameters=PpoHyperparameters(entropy_coefficient=0.01), kl_coefficient=0.2
    ),
    "ppo, clipped step": PpoRule(hyperparameters=STANDARD, kl_coefficient=0.0),
    "impact": ImpactRule(
        hyperparameters=IMPACT.model_copy(update=WITH_ENTROPY), kl_coefficient=0.2
    ),
    "impala": ImpalaRule(hyperparameters=IMPALA.model_copy(update=WITH_ENTROPY)),
}
NETWORKS = [
    (CONTINUOUS, "state_dependent"),
    (CONTINUOUS, "free"),
    (DISCRETE, "state_dependent"),
]


def defined(network: ActorCritic, rule: LossRule, minibatch: Columns[Tensor]) -> Tensor:
    """Return the gradient of the rule's loss by autograd, in the layout of the parameters # [P]."""
    parameters = leaves(network, policy_only=False)
    loss = rule.loss(
        network.outputs_at(parameters, minibatch.observation),
        network.values_at(parameters, minibatch.observation),
        minibatch,
        network.distribution,
    )
    parts = torch.autograd.grad(loss, list(parameters.values()))
    flat = torch.zeros_like(network.flat)
    views = network.views_of(flat)
    for name, part in zip(parameters, parts, strict=True):
        views[name].copy_(part)
    return flat


def moved(network: ActorCritic) -> None:
    """Move a network away from the policy its samples are of: ratios are not 1 then."""
    generator = torch.Generator().manual_seed(3)
    for parameter in network.parameters():
        parameter.data.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)


def dense(environment: EnvironmentSpec, log_std: str) -> tuple[ActorCritic, Columns[Tensor]]:
    settings = PpoHyperparameters.model_validate({"hidden_sizes": (8, 7), "log_std": log_std})
    network = build_network(environment, settings, seed=0)
    trajectories = [make_trajectory(environment, network, actor_index=i) for i in range(2)]
    batch = on_policy_batch(trajectories, network, discount=0.99, gae_lambda=0.95)
    moved(network)
    return network, picked(batch, torch.arange(0, batch.num_samples, 2))


def by_torch(network: ActorCritic, rule: LossRule) -> NetworkGradients[Tensor]:
    into = network.new_gradient()
    return NetworkGradients(network.differentiate, rule, network.distribution, into=into)


def expect_the_definition(
    network: ActorCritic, rule: LossRule, minibatch: Columns[Tensor], found: Gradient
) -> None:
    expected = defined(network, rule, minibatch)
    assert expected.norm() > 0
    torch.testing.assert_close(found.flat, expected, rtol=1e-4, atol=1e-5 * float(expected.norm()))
    assert len(found.stats) == len(stat_names(rule))


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(("environment", "log_std"), NETWORKS)
def test_dense_gradients_are_those_of_the_loss(
    environment: EnvironmentSpec, log_std: str, name: str
) -> None:
    rule = RULES[name]
    network, minibatch = dense(environment, log_std)
    with network.without_graph():
        found = by_torch(network, rule).gradient(minibatch)
    expect_the_definition(network, rule, minibatch, found)
    terms = network.array_terms()
    assert (terms is None) is (environment is DISCRETE)
    if terms is None:
        return
    into = network.new_gradient()
    by_numpy = NetworkGradients(network.differentiate_arrays, rule, terms, into=into)
    arrays = minibatch.mapped(Tensor.numpy)
    found = by_numpy.gradient(arrays)
    assert isinstance(found.stats, np.ndarray)
    expect_the_definition(network, rule, minibatch, found)


@pytest.mark.parametrize("name", RULES)
def test_convolutional_gradients_are_those_of_the_loss(name: str) -> None:
    network, batch = conv.batch_of(conv.CASES[0])
    moved(network)
    rule, minibatch = RULES[name], picked(batch, torch.arange(batch.num_samples))
    with network.without_graph():
        found = by_torch(network, rule).gradient(minibatch)
    expect_the_definition(network, rule, minibatch, found)
